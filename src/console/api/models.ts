import type { UseQueryResult } from '@tanstack/react-query';
import type { ListAnswer } from './list-answer.js';
import type { Measure } from './measure.js';
import { useList } from './queries.js';

/** The part of a model that describes its devices. */
export interface Model {
  id_developer: string;
  measures?: readonly Measure[];
  properties?: unknown;
}

const query = { fields: 'id_developer,measures,properties', max: 1000 };

/** Reads the measures and properties of the models. */
export function useModels({ enabled }: { enabled: boolean }): UseQueryResult<ListAnswer<Model>> {
  return useList<Model>('/models/', query, { enabled });
}
