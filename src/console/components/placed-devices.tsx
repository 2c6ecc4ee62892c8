import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { lazy, Suspense, useCallback, useState } from 'react';
import type { Query } from '../api/client.js';
import { loadPlaces } from '../api/device-places.js';
import { parameterOf } from '../api/document.js';
import { useSession } from '../api/queries.js';
import { formatNumber } from '../format.js';
import type { Circle } from './device-map.js';
import { Failure, Loading } from './feedback.js';

const DeviceMap = lazy(() => import('./device-map.js').then(({ DeviceMap: component }) => ({ default: component })));

interface PlacedDevicesProps {
  query: Query;
  max_devices: number;
  circle?: Circle | undefined;
  isDrawing?: boolean;
  onDraw?(circle: Circle): void;
}

const nothing: never[] = [];
const stale_ms = 60_000;

/** The devices that match a filter on a map, with the progress of reading them. */
export function PlacedDevices({ query, max_devices, circle, isDrawing, onDraw }: PlacedDevicesProps) {
  const { document } = useSession();
  const navigate = useNavigate();
  const [progress, setProgress] = useState({ loaded: 0, total: 0 });
  const { data, error, refetch } = useQuery({
    queryKey: ['places', query, max_devices],
    queryFn: ({ signal }) =>
      loadPlaces({
        query,
        max_devices,
        signal,
        hasFields: parameterOf(document, '/devices/', 'fields') !== undefined,
        onProgress: (loaded, total) => setProgress({ loaded, total }),
      }),
    staleTime: stale_ms,
  });
  const open = useCallback(
    (id: string) => void navigate({ to: '/$plural/$id', params: { plural: 'devices', id } as never }),
    [navigate],
  );
  if (error) return <Failure error={error} onRetry={() => void refetch()} />;
  return (
    <>
      <Suspense fallback={<Loading height="20rem" />}>
        <DeviceMap
          places={data ?? nothing}
          circle={circle}
          isDrawing={isDrawing ?? false}
          {...(onDraw && { onDraw })}
          onOpen={open}
          label="Map of devices"
        />
      </Suspense>
      <p className="help" role="status">
        {data === undefined
          ? `Reading devices: ${formatNumber(progress.loaded)} of ${formatNumber(progress.total)}`
          : `${formatNumber(data.length)} ${data.length === 1 ? 'device' : 'devices'} with a place`}
      </p>
    </>
  );
}
