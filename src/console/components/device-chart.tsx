import { useQuery, useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense } from 'react';
import { useAddress } from '../address.js';
import { pathOf, request } from '../api/client.js';
import type { Stream } from '../api/interface.js';
import { useLive } from '../api/live.js';
import { useList, useSession } from '../api/queries.js';
import { findNumberPaths, max_paths, type Series } from '../api/series.js';
import { formatNumber, fromLocalInput, toLocalInput } from '../format.js';
import type { StoredObject } from '../resources.js';
import { Loaded, Loading } from './feedback.js';
import { Panel } from './page.js';
import { Time } from './value.js';

const PlottedSeries = lazy(() =>
  import('./plotted-series.js').then(({ PlottedSeries: component }) => ({ default: component })),
);

const hour_s = 3600;
const spans: Readonly<Record<string, { label: string; length_s: number }>> = {
  '1h': { label: 'Last hour', length_s: hour_s },
  '6h': { label: 'Last 6 hours', length_s: 6 * hour_s },
  '24h': { label: 'Last 24 hours', length_s: 24 * hour_s },
  '7d': { label: 'Last 7 days', length_s: 7 * 24 * hour_s },
  '30d': { label: 'Last 30 days', length_s: 30 * 24 * hour_s },
};
const defaultSpan = '24h';
const chart_points = 300;
/** A stream shows up within two seconds of its receipt. */
const refresh_ms = 1000;
const slow_refresh_ms = 10_000;
const template = '/devices/{device_id_developer}/series/';
const liveTemplate = '/devices/{device_id_developer}/streams/live/';

/** Charts of what a device measures, over fields and times of which the address keeps track. */
export function DeviceChart({ device }: { device: StoredObject }) {
  const { can } = useSession();
  const [search, setSearch] = useAddress();
  const isLive = can('GET', liveTemplate);
  const latest = useList<Stream>(
    pathOf('devices', device.id_developer, 'streams'),
    { _t: 'str', sort: 'at', order: -1, max: 20 },
    { refetch_ms: isLive ? slow_refresh_ms : refresh_ms },
  );
  const queryClient = useQueryClient();
  useLive(pathOf('devices', device.id_developer, 'streams', 'live'), { _t: 'str' }, isLive, () => {
    void queryClient.invalidateQueries({ queryKey: [pathOf('devices', device.id_developer, 'streams')] });
    void queryClient.invalidateQueries({ queryKey: [pathOf('devices', device.id_developer, 'series')] });
  });
  if (!can('GET', template)) return null;
  const streams = latest.data?.result ?? [];
  const paths = [...new Set(streams.flatMap(({ data }) => findNumberPaths(data)))].sort();
  const chosen = search.fields?.split(',').filter((path) => path !== '') ?? paths.slice(0, 3);
  return (
    <Panel title="Measurements" actions={<SpanChoice />}>
      <Loaded of={latest} height="22rem">
        {({ total_documents: total }) =>
          total === 0 ? (
            <p className="muted">This device has not sent data yet.</p>
          ) : (
            <>
              <PathChoice
                paths={paths}
                chosen={chosen}
                onChange={(fields) => setSearch({ fields: fields.join(',') }, { replace: true })}
              />
              {chosen.length > 0 && <Chart device={device} paths={chosen.slice(0, max_paths)} isLive={isLive} />}
              {streams[0] && <LatestValues stream={streams[0]} />}
            </>
          )
        }
      </Loaded>
    </Panel>
  );
}

function SpanChoice() {
  const [search, setSearch] = useAddress();
  const isCustom = search.from !== undefined || search.to !== undefined;
  const change = (name: 'from' | 'to') => (text: string) => {
    const seconds = fromLocalInput(text);
    setSearch({ [name]: seconds === undefined ? undefined : String(seconds) }, { replace: true });
  };
  const input = (name: 'from' | 'to', label: string) => (
    <input
      type="datetime-local"
      step={1}
      aria-label={label}
      value={search[name] === undefined ? '' : toLocalInput(Number(search[name]))}
      onChange={({ target }) => change(name)(target.value)}
    />
  );
  return (
    <>
      <select
        aria-label="Time span"
        value={isCustom ? 'custom' : (search.span ?? defaultSpan)}
        onChange={({ target }) =>
          target.value === 'custom'
            ? setSearch({
                from: String(Math.floor(Date.now() / 1000) - 24 * hour_s),
                to: String(Math.floor(Date.now() / 1000)),
              })
            : setSearch({ span: target.value, from: undefined, to: undefined })
        }
      >
        {Object.entries(spans).map(([id, { label }]) => (
          <option key={id} value={id}>
            {label}
          </option>
        ))}
        <option value="custom">From … to …</option>
      </select>
      {isCustom && input('from', 'From')}
      {isCustom && input('to', 'To')}
    </>
  );
}

interface PathChoiceProps {
  paths: readonly string[];
  chosen: readonly string[];
  onChange(paths: string[]): void;
}

function PathChoice({ paths, chosen, onChange }: PathChoiceProps) {
  return (
    <fieldset className="choices">
      <legend className="hidden">Fields</legend>
      {[...new Set([...paths, ...chosen])].map((path) => (
        <label key={path}>
          <input
            type="checkbox"
            checked={chosen.includes(path)}
            disabled={!chosen.includes(path) && chosen.length >= max_paths}
            onChange={({ target }) =>
              onChange(target.checked ? [...chosen, path] : chosen.filter((other) => other !== path))
            }
          />
          {path}
        </label>
      ))}
    </fieldset>
  );
}

interface ChartProps {
  device: StoredObject;
  paths: readonly string[];
  /** A live feed announces new streams, so that polling can be slow. */
  isLive: boolean;
}

function Chart({ device, paths, isLive }: ChartProps) {
  const [search] = useAddress();
  const length_s = (spans[search.span ?? defaultSpan] ?? spans[defaultSpan])?.length_s ?? 24 * hour_s;
  const path = pathOf('devices', device.id_developer, 'series');
  const isFixed = search.from !== undefined || search.to !== undefined;
  const answer = useQuery({
    queryKey: [path, paths, length_s, search.from, search.to],
    queryFn: ({ signal }) => {
      const now_s = Math.ceil(Date.now() / 1000);
      const at_to = isFixed ? Number(search.to ?? now_s) : now_s;
      const at_from = isFixed ? Number(search.from ?? at_to - length_s) : at_to - length_s;
      const query = { fields: paths.join(','), points: chart_points, at_from, at_to };
      return request<Series>('GET', path, { query, signal });
    },
    refetchInterval: isFixed ? false : length_s <= 24 * hour_s && !isLive ? refresh_ms : slow_refresh_ms,
    placeholderData: (previous) => previous,
  });
  return (
    <Loaded of={answer} height="20rem">
      {(series) => (
        <Suspense fallback={<Loading height="20rem" />}>
          <PlottedSeries
            series={series}
            paths={paths}
            label={`Measurements of ${device.name}`}
            timeZone={typeof device.time_zone === 'string' ? device.time_zone : undefined}
          />
        </Suspense>
      )}
    </Loaded>
  );
}

/** The last measurements as text, also for screen readers. */
function LatestValues({ stream: { data, at, created_at } }: { stream: Stream }) {
  return (
    <section className="latest">
      <h3>
        Latest values <Time seconds={at ?? created_at} />
      </h3>
      <dl className="fields" aria-label="Latest values">
        {Object.entries(data).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              {typeof value === 'number'
                ? formatNumber(value)
                : typeof value === 'string'
                  ? value
                  : JSON.stringify(value)}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
