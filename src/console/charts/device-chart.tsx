import './chart.css';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense } from 'react';
import { pathOf, request } from '../api/client.js';
import type { Device, Stream } from '../api/interface.js';
import { useLive } from '../api/live.js';
import { useList } from '../api/queries.js';
import { useSession } from '../api/session.js';
import { browserZone, formatNumber, fromLocalInput, isKnownZone, toLocalInput } from '../lib/format.js';
import { type Search, useAddress } from '../ui/address.js';
import { Loaded, Loading } from '../ui/feedback.js';
import { Facts, Panel } from '../ui/page.js';
import { Time } from '../ui/value.js';
import { findNumberPaths, max_paths, type Series } from './series.js';

const PlottedSeries = lazy(() =>
  import('./plotted-series.js').then(({ PlottedSeries: component }) => ({ default: component })),
);

const day_s = 86_400;
const spans: Readonly<Record<string, { label: string; length_s: number }>> = {
  '1h': { label: 'Last hour', length_s: 3600 },
  '6h': { label: 'Last 6 hours', length_s: 6 * 3600 },
  '24h': { label: 'Last 24 hours', length_s: day_s },
  '7d': { label: 'Last 7 days', length_s: 7 * day_s },
  '30d': { label: 'Last 30 days', length_s: 30 * day_s },
};
const chart_points = 300;
/** A stream shows up within two seconds of its receipt. */
const refresh_ms = 1000;
/** A live feed announces new streams, so that polling can be slow. */
const slow_refresh_ms = 10_000;
const template = '/devices/{device_id_developer}/series/';
const live_template = '/devices/{device_id_developer}/streams/live/';

/** Charts of what a device measures, over fields and times of which the address keeps track. */
export function DeviceChart({ device }: { device: Device }) {
  const { can } = useSession();
  const [search, setSearch] = useAddress();
  const queryClient = useQueryClient();
  const isLive = can('GET', live_template);
  const [streams_path, series_path] = [
    pathOf('devices', device.id_developer, 'streams'),
    pathOf('devices', device.id_developer, 'series'),
  ];
  const query = { _t: 'str', sort: 'at', order: -1, max: 20 };
  const latest = useList<Stream>(streams_path, query, { refetch_ms: isLive ? slow_refresh_ms : refresh_ms });
  useLive(`${streams_path}live/`, { _t: 'str' }, isLive, () => {
    for (const path of [streams_path, series_path]) void queryClient.invalidateQueries({ queryKey: [path] });
  });
  if (!can('GET', template)) return null;
  return (
    <Panel
      title="Measurements"
      actions={
        <>
          <SpanChoice device={device} />
          <ZoneChoice device={device} />
        </>
      }
    >
      <Loaded of={latest} height="22rem">
        {({ result: streams }) => {
          const [last] = streams;
          if (last === undefined) return <p className="muted">This device has not sent data yet.</p>;
          const paths = [...new Set(streams.flatMap(({ data }) => findNumberPaths(data)))].sort();
          const chosen = search.fields?.split(',').filter((path) => path !== '') ?? paths.slice(0, 3);
          return (
            <>
              <PathChoice
                paths={paths}
                chosen={chosen}
                onChange={(fields) => setSearch({ fields: fields.join(',') }, { replace: true })}
              />
              {chosen.length > 0 && (
                <Chart device={device} path={series_path} fields={chosen.slice(0, max_paths)} isLive={isLive} />
              )}
              <LatestValues stream={last} />
            </>
          );
        }}
      </Loaded>
    </Panel>
  );
}

const isCustomSpan = ({ from, to }: Search) => from !== undefined || to !== undefined;
/** All times of a chart are in one zone: that of the browser, or of the device where the address says so. */
const zoneOf = ({ zone }: Search, { time_zone }: Device) =>
  zone === 'device' && isKnownZone(time_zone) ? time_zone : browserZone;
const spanOf = ({ span = '' }: Search) => (Object.hasOwn(spans, span) ? span : '24h');

function ZoneChoice({ device }: { device: Device }) {
  const [search, setSearch] = useAddress();
  const zone = zoneOf(search, device);
  if (device.time_zone === browserZone || !isKnownZone(device.time_zone)) return <span className="muted">{zone}</span>;
  return (
    <select
      aria-label="Time zone"
      value={zone}
      onChange={({ target }) =>
        setSearch({ zone: target.value === browserZone ? undefined : 'device' }, { replace: true })
      }
    >
      <option value={browserZone}>{browserZone}</option>
      <option value={device.time_zone}>{device.time_zone} (device)</option>
    </select>
  );
}

function SpanChoice({ device }: { device: Device }) {
  const [search, setSearch] = useAddress();
  const zone = zoneOf(search, device);
  function choose(span: string): void {
    const now_s = Math.floor(Date.now() / 1000);
    if (span === 'custom') setSearch({ from: String(now_s - day_s), to: String(now_s) });
    else setSearch({ span, from: undefined, to: undefined });
  }
  return (
    <>
      <select
        aria-label="Time span"
        value={isCustomSpan(search) ? 'custom' : spanOf(search)}
        onChange={({ target }) => choose(target.value)}
      >
        {Object.entries(spans).map(([id, { label }]) => (
          <option key={id} value={id}>
            {label}
          </option>
        ))}
        <option value="custom">From … to …</option>
      </select>
      {isCustomSpan(search) &&
        (['from', 'to'] as const).map((name) => (
          <input
            key={name}
            type="datetime-local"
            step={1}
            aria-label={{ from: 'From', to: 'To' }[name]}
            value={search[name] === undefined ? '' : toLocalInput(Number(search[name]), zone)}
            onChange={({ target }) =>
              setSearch({ [name]: fromLocalInput(target.value, zone)?.toString() }, { replace: true })
            }
          />
        ))}
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
    <fieldset className="row choices">
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
  device: Device;
  /** Path of the series of the device. */
  path: string;
  fields: readonly string[];
  isLive: boolean;
}

function Chart({ device, path, fields, isLive }: ChartProps) {
  const [search] = useAddress();
  const { length_s = day_s } = spans[spanOf(search)] ?? {};
  const isFixed = isCustomSpan(search);
  const answer = useQuery({
    queryKey: [path, fields, length_s, search.from, search.to],
    queryFn: ({ signal }) => {
      const now_s = Math.ceil(Date.now() / 1000);
      const at_to = Number(search.to ?? now_s);
      const at_from = Number(search.from ?? at_to - length_s);
      const query = { fields: fields.join(','), points: chart_points, at_from, at_to };
      return request<Series>('GET', path, { query, signal });
    },
    refetchInterval: isFixed ? false : length_s <= day_s && !isLive ? refresh_ms : slow_refresh_ms,
    placeholderData: (previous) => previous,
  });
  return (
    <Loaded of={answer} height="20rem">
      {(series) => (
        <Suspense fallback={<Loading height="20rem" />}>
          <PlottedSeries
            series={series}
            paths={fields}
            label={`Measurements of ${device.name}`}
            timeZone={zoneOf(search, device)}
          />
        </Suspense>
      )}
    </Loaded>
  );
}

/** The last measurements as text, also for screen readers. */
function LatestValues({ stream: { data, at, created_at } }: { stream: Stream }) {
  const formatValue = (value: unknown) =>
    typeof value === 'number' ? formatNumber(value) : typeof value === 'string' ? value : JSON.stringify(value);
  return (
    <section className="latest">
      <h3>
        Latest values <Time seconds={at ?? created_at} />
      </h3>
      <Facts label="Latest values" entries={Object.entries(data).map(([name, value]) => [name, formatValue(value)])} />
    </section>
  );
}
