import type { UseQueryResult } from '@tanstack/react-query';
import type { ListAnswer } from './client.js';
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

/** A value that devices of a model send, as the model describes it. */
export interface Measure {
  path: string;
  name?: string;
  unit?: string;
  decimals?: number;
  type?: 'number' | 'text' | 'boolean';
  min?: number;
  max?: number;
  /** Lists of devices are filtered and sorted by it. */
  filter?: boolean;
}
