import './chart.css';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense } from 'react';
import { pathOf, request } from '../api/client.js';
import { useList, useModel, useSession } from '../api/hooks.js';
import type { Device, Stream } from '../api/interface.js';
import { useLive } from '../api/live.js';
import type { Measure } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { valueAt } from '../lib/paths.js';
import { useAddress } from '../ui/address.js';
import { CheckBoxes } from '../ui/choice.js';
import { Facts, Loaded, Loading, Panel } from '../ui/page.js';
import { Time } from '../ui/value.js';
import { useMarks } from './marks.js';
import { findMeasure, findPaths, isCounter } from './measures.js';
import { bucketsOf, max_paths, type Series } from './series.js';
import { type Span, SpanChoice, spanOf, zoneOf } from './span.js';
import { useThresholds } from './thresholds.js';

const Plots = lazy(() => import('./plots.js').then(({ Plots: component }) => ({ default: component })));

const max_default_paths = 6;
const day_s = 86_400;
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
  const streams_path = pathOf('devices', device.id_developer, 'streams');
  const series_path = pathOf('devices', device.id_developer, 'series');
  const measures = useModel(device.id_model).data?.measures ?? [];
  const query = { _t: 'str', sort: 'at', order: -1, max: 20 };
  const latest = useList<Stream>(streams_path, query, { refetch_ms: isLive ? slow_refresh_ms : refresh_ms });
  useLive(`${streams_path}live/`, { _t: 'str' }, isLive, () => {
    for (const path of [streams_path, series_path]) void queryClient.invalidateQueries({ queryKey: [path] });
  });
  if (!can('GET', template)) return null;
  return (
    <Panel title="Measurements" actions={<SpanChoice device={device} />}>
      <Loaded of={latest} height="22rem">
        {({ result: streams }) => {
          const [last] = streams;
          if (last === undefined) return <p className="muted">This device has not sent data yet.</p>;
          const paths = findPaths(streams, measures);
          const chosen = search.fields?.split(',').filter((path) => path !== '') ?? chooseByDefault(paths, streams);
          return (
            <>
              <fieldset className="row choices">
                <legend className="hidden">Fields</legend>
                <CheckBoxes
                  options={[...new Set([...paths, ...chosen])].map((path) => [path, findMeasure(measures, path).name])}
                  chosen={chosen}
                  isFull={chosen.length >= max_paths}
                  onChange={(fields) => setSearch({ fields: fields.join(',') }, { replace: true })}
                />
              </fieldset>
              {chosen.length > 0 && (
                <Charts
                  device={device}
                  path={series_path}
                  fields={chosen.slice(0, max_paths)}
                  {...{ measures, streams, isLive }}
                />
              )}
              <OtherValues stream={last} paths={chosen} />
            </>
          );
        }}
      </Loaded>
    </Panel>
  );
}

function chooseByDefault(paths: readonly string[], streams: readonly Stream[]): string[] {
  const valuesOf = (path: string) =>
    streams.map(({ data }) => valueAt(data, path)).filter((value) => typeof value === 'number');
  const measured = paths.filter((path) => !isCounter(valuesOf(path)));
  return (measured.length > 0 ? measured : paths).slice(0, max_default_paths);
}

interface ChartsProps {
  device: Device;
  /** Path of the series of the device. */
  path: string;
  fields: readonly string[];
  measures: readonly Measure[];
  streams: readonly Stream[];
  isLive: boolean;
}

function Charts({ device, path, fields, measures, streams, isLive }: ChartsProps) {
  const [search, setSearch] = useAddress();
  const { length_s, at_to }: Span = spanOf(search, streams);
  const timeZone = zoneOf(search, device);
  const buckets = bucketsOf(length_s, timeZone);
  const answer = useQuery({
    queryKey: [path, fields, length_s, at_to, buckets],
    queryFn: ({ signal }) => {
      const end_s = at_to ?? Math.ceil(Date.now() / 1000);
      const query = { fields: fields.join(','), ...buckets, at_from: end_s - length_s, at_to: end_s };
      return request<Series>('GET', path, { query, signal });
    },
    refetchInterval: at_to !== undefined ? false : length_s <= day_s && !isLive ? refresh_ms : slow_refresh_ms,
    placeholderData: (previous) => previous,
  });
  // the minute, so that the answer can be reused
  const at_from = Math.floor(((at_to ?? Date.now() / 1000) - length_s) / 60) * 60;
  const marks = useMarks(device, at_from, at_to);
  const thresholds = useThresholds(device);
  return (
    <Loaded of={answer} height="20rem">
      {(series) => (
        <Suspense fallback={<Loading height="20rem" />}>
          <Plots
            series={series}
            paths={fields}
            measures={measures}
            streams={streams}
            marks={marks}
            thresholds={thresholds}
            label={`Measurements of ${device.name}`}
            timeZone={timeZone}
            onZoom={(from, to) => setSearch({ from: String(from), to: String(to) })}
          />
        </Suspense>
      )}
    </Loaded>
  );
}

/** The values of the last stream that no chart shows, such as text. */
function OtherValues({ stream: { data, at, created_at }, paths }: { stream: Stream; paths: readonly string[] }) {
  const entries = Object.entries(data).filter(([name]) => !paths.includes(name));
  const formatValue = (value: unknown) =>
    typeof value === 'number' ? formatNumber(value) : typeof value === 'string' ? value : JSON.stringify(value);
  return (
    <section className="latest">
      <h3>
        Latest values <Time seconds={at ?? created_at} />
      </h3>
      <Facts label="Latest values" entries={entries.map(([name, value]) => [name, formatValue(value)])} />
    </section>
  );
}
