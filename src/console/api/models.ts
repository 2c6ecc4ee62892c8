import type { UseQueryResult } from '@tanstack/react-query';
import { pathOf } from './client.js';
import { useGet, useList } from './queries.js';
import type { ListAnswer, Model } from './types.js';

const query = { fields: 'id_developer,measures,properties', max: 1000 };

/** Reads the measures and properties of the models. */
export function useModels({ enabled }: { enabled: boolean }): UseQueryResult<ListAnswer<Model>> {
  return useList<Model>('/models/', query, { enabled });
}

/** Reads a model; nothing for a device without one. */
export function useModel(id = ''): UseQueryResult<Model> {
  return useGet<Model>(pathOf('models', id), {}, { enabled: id !== '' });
}
