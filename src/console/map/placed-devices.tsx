import { type QueryClient, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useCallback, useState } from 'react';
import { pathOf, type Query, request } from '../api/client.js';
import type { Model } from '../api/resources.js';
import { findMeasure, findPaths, formatMeasured } from '../charts/measures.js';
import { formatDistance, formatNumber } from '../lib/format.js';
import { valueAt } from '../lib/paths.js';
import { Failure } from '../ui/page.js';
import { ReadAt } from '../ui/value.js';
import type { Circle } from './circle.js';
import { DeviceMap } from './device-map.js';
import { loadPlaces, type Places } from './device-places.js';

export interface PlacedDevicesProps {
  label?: string;
  query: Query;
  max_devices: number;
  /** Beside other things on a page: seldom read again. */
  isPreview?: boolean;
  /** A preview is read again only after this has changed. */
  since?: string | undefined;
  isFitted?: boolean;
  circle?: Circle | undefined;
  isDrawing?: boolean;
  onDraw?(circle: Circle): void;
}

/** Says how many devices are drawn, and among how many these were looked for. */
function describePlaces({ places, read, total }: Places): string {
  const text = `${formatNumber(places.length)} ${places.length === 1 ? 'device' : 'devices'} with a place`;
  return read < total ? `${text}, among the first ${formatNumber(read)} of ${formatNumber(total)}` : text;
}

const nothing: never[] = [];
/** So many devices are read again with each refresh of the page; more take longer, and are read once a minute. */
const max_refreshed = 5000;
const [refresh_ms, slow_refresh_ms, preview_refresh_ms] = [10_000, 60_000, 300_000];

/** The devices that match a filter on a map, with the progress of reading them. */
export function PlacedDevices({ query, max_devices, isPreview = false, since, ...drawing }: PlacedDevicesProps) {
  const navigate = useNavigate();
  const [progress, setProgress] = useState({ loaded: 0, total: 0 });
  const onProgress = (loaded: number, total: number) => setProgress({ loaded, total });
  const { data, dataUpdatedAt, error, refetch } = useQuery({
    queryKey: ['places', query, max_devices],
    queryFn: async ({ signal }) => ({ since, ...(await loadPlaces({ query, max_devices, signal, onProgress })) }),
    staleTime: refresh_ms,
    refetchInterval({ state }) {
      if (isPreview && since !== undefined && state.data?.since === since) return false;
      if (isPreview) return preview_refresh_ms;
      return (state.data?.read ?? 0) > max_refreshed ? slow_refresh_ms : refresh_ms;
    },
  });
  const places = data?.places ?? nothing;
  const open = useCallback(
    (id: string) => void navigate({ to: '/$plural/$id', params: { plural: 'devices', id } }),
    [navigate],
  );
  const queryClient = useQueryClient();
  const readValues = useCallback((id: string) => readLastValues(queryClient, id), [queryClient]);
  if (error) return <Failure error={error} onRetry={() => void refetch()} />;
  return (
    <>
      <DeviceMap label="Map of devices" {...drawing} {...{ places, readValues }} onOpen={open} />
      <div className="row help">
        <p role="status">
          {data === undefined
            ? `Reading devices: ${formatNumber(progress.loaded)} of ${formatNumber(progress.total)}`
            : describePlaces(data)}
        </p>
        {data !== undefined && since === undefined && <ReadAt at_ms={dataUpdatedAt} />}
      </div>
    </>
  );
}

const max_values = 6;
const model_age_ms = 60_000;

type Latest = { at: number; data: Record<string, unknown> };

/** Reads what a device has sent last. @returns lines such as `Battery: 11.9 V`, and the age; none if it has sent nothing */
async function readLastValues(queryClient: QueryClient, id: string): Promise<string[]> {
  const query = { fields: 'id_model,latest' };
  const { id_model, latest } = await request<{ id_model?: string; latest?: Latest }>('GET', pathOf('devices', id), {
    query,
  });
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
