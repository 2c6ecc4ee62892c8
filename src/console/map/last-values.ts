import type { QueryClient } from '@tanstack/react-query';
import { pathOf, request } from '../api/client.js';
import type { Model } from '../api/models.js';
import { findMeasure, findPaths, formatMeasured } from '../charts/measures.js';
import { formatDistance } from '../lib/format.js';
import { valueAt } from '../lib/paths.js';

const max_values = 6;
const model_age_ms = 60_000;

interface MeasuredDevice {
  id_model?: string;
  latest?: { at: number; data: Record<string, unknown> };
}

/** Reads what a device has sent last. @returns lines such as `Battery: 11.9 V`, and the age; none if it has sent nothing */
export async function readLastValues(queryClient: QueryClient, id: string): Promise<string[]> {
  const query = { fields: 'id_model,latest' };
  const { id_model, latest } = await request<MeasuredDevice>('GET', pathOf('devices', id), { query });
  if (latest === undefined) return [];
  const model_path = pathOf('models', id_model ?? '');
  const { measures = [] } =
    id_model === undefined
      ? {}
      : await queryClient.fetchQuery({
          queryKey: [model_path, {}],
          queryFn: () => request<Model>('GET', model_path),
          staleTime: model_age_ms,
        });
  const { at, data } = latest;
  const declared = measures.map(({ path }) => path).filter((path) => valueAt(data, path) !== undefined);
  const paths = [...new Set([...declared, ...findPaths([{ data }], measures)])].slice(0, max_values);
  const lines = paths.map((path) => {
    const measure = findMeasure(measures, path);
    return `${measure.name}: ${formatMeasured(valueAt(data, path), measure)}`;
  });
  return [...lines, formatDistance(at)];
}
