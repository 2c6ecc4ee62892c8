import { useMemo } from 'react';
import { pathOf } from '../api/client.js';
import { useList, useModel } from '../api/hooks.js';
import type { Device, Stream } from '../api/interface.js';
import { countOf, type Measure } from '../api/resources.js';
import { formatMeasured } from '../charts/measures.js';
import { findScalars, joinPath, keysOf, valueAt } from '../lib/paths.js';
import { ObjectTable, type RequestedColumn } from '../lists/object-table.js';
import { Loading, Page } from '../ui/page.js';

const refresh_ms = 3000;
const max_shown = 6;

/** The streams of all devices. */
export function Streams() {
  return (
    <Page title="Streams">
      <ObjectTable
        caption="Streams"
        template="/streams/"
        columns={['at', 'device', '_t', 'data', 'protocol', 'created_at']}
        sorting={{ sort: 'at', order: '-1' }}
        refetch_ms={refresh_ms}
        empty="Nothing has been received yet."
      />
    </Page>
  );
}

/** The streams of one device, with a column for each measure of its model, else for each value of the last stream. */
export function DeviceStreams({ device }: { device: Device }) {
  const { id_developer: id, id_model } = device;
  const path = pathOf('devices', id, 'streams');
  const model = useModel(id_model);
  const measures = model.data?.measures;
  const last = useList<Stream>(path, { _t: 'str', sort: 'at', order: -1, max: 1 }, { enabled: measures === undefined });
  const data = last.data?.result[0]?.data;
  // the same array until something changes, so that rows need not be rendered again
  const described = JSON.stringify(measures ?? findScalars(data).map(({ path: found }) => ({ path: found })));
  const requested = useMemo(() => columnsOf(JSON.parse(described)), [described]);
  if (model.isLoading || last.isLoading) return <Loading height="24rem" />;
  const values = requested.length === 0 ? ['data'] : requested.slice(0, max_shown).map(({ field }) => field);
  const { stream_retention_days: days = model.data?.stream_retention_days } = device;
  const { summary_retention_days: summary_days = model.data?.summary_retention_days } = device;
  return (
    <>
      <p className="help">
        Streams are kept {describeRetention(days)}, hourly summaries {describeRetention(summary_days)}.
      </p>
      <ObjectTable
        caption="Streams"
        template="/devices/{device_id_developer}/streams/"
        path={path}
        columns={['at', '_t', ...values, 'created_at']}
        requested={requested}
        sorting={{ sort: 'at', order: '-1' }}
        refetch_ms={refresh_ms}
        empty="This device has not sent anything yet."
      />
    </>
  );
}

/** Says how long something is kept (`reference/streams.md#1010-retention`). @param days of the device, else of its model */
function describeRetention(days: number | undefined): string {
  return days === undefined ? 'as long as the service is set to' : `for ${countOf({ noun: 'day' }, days)}`;
}

function columnsOf(measures: readonly Measure[]): RequestedColumn[] {
  // a list of fields cannot hold a path with a comma
  const listed = measures.filter(({ path }) => !path.includes(','));
  return listed.map((measure) => ({
    // a list of fields takes dots, no JSON Pointer
    field: `data.${joinPath(keysOf(measure.path))}`,
    label: measure.name ?? measure.path,
    fields: ['data'],
    render({ data }) {
      const value = valueAt(data, measure.path);
      return value === undefined ? '–' : formatMeasured(value, measure);
    },
  }));
}
