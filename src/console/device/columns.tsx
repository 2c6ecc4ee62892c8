import { useMemo } from 'react';
import { useModels } from '../api/hooks.js';
import { type OpenAlarms, shownStatusOf } from '../api/resources.js';
import { fieldOf, findMeasuredPaths, lastValueOf, type MeasuredPath } from '../charts/measured-paths.js';
import { useNow } from '../lib/clock.js';
import { formatDuration, formatTime, labelOf } from '../lib/format.js';
import type { RequestedColumn } from '../lists/object-table.js';
import { AlarmBadges, StatusBadge, Time } from '../ui/value.js';

const refresh_s = 30;
const max_shown = 3;
const noColumns: DeviceColumns = { requested: [], shown: [] };

/** The status of a device, with its open alarms. */
const statusColumn: RequestedColumn = {
  field: 'status',
  label: labelOf('status'),
  fields: ['status', 'last_status_at', 'alarms'],
  render: ({ alarms, ...device }) => (
    <>
      <StatusBadge status={shownStatusOf(device)} /> <AlarmBadges alarms={alarms as OpenAlarms | undefined} />
    </>
  ),
};

/** A deadline that has passed says how late the device is. */
const dueColumns = ['stream_due_at', 'status_due_at'].map(
  (field): RequestedColumn => ({
    field,
    label: labelOf(field),
    fields: [field],
    render: (device) => <Due seconds={device[field] as number | undefined} />,
  }),
);

function Due({ seconds }: { seconds: number | undefined }) {
  useNow(refresh_s);
  const now_s = Date.now() / 1000;
  if (seconds === undefined) return '–';
  if (seconds >= now_s) return <Time seconds={seconds} />;
  return <span title={formatTime(seconds)}>late by {formatDuration(now_s - seconds)}</span>;
}

interface DeviceColumns {
  /** Columns to choose from. */
  requested: readonly RequestedColumn[];
  /** The measures that are shown unless the address names columns. */
  shown: readonly string[];
}

/**
 * Shows devices with their open alarms and how late they are, and offers a column for each measure, with its last value;
 * undefined until the models have been read. @param id_model model of all devices that are listed
 */
export function useDeviceColumns({ isOffered, id_model }: { isOffered: boolean; id_model: string | undefined }) {
  const { data, error } = useModels({ enabled: isOffered });
  return useMemo((): DeviceColumns | undefined => {
    if (!isOffered) return noColumns;
    if (data === undefined && error === null) return undefined;
    const measured = findMeasuredPaths(data?.result ?? []);
    const ofModel = measured.filter(({ ofModels }) => id_model === undefined || ofModels.has(id_model));
    return {
      requested: [statusColumn, ...dueColumns, ...measured.map(createColumn)],
      shown: ofModel.slice(0, max_shown).map(fieldOf),
    };
  }, [data, error, isOffered, id_model]);
}

function createColumn(measured: MeasuredPath): RequestedColumn {
  const { ofModels, path, name = path } = measured;
  const field = fieldOf(measured);
  return {
    field,
    label: name,
    fields: [field, 'id_model'],
    isSorted: [...ofModels.values()].some(({ filter }) => filter),
    render: (device) => lastValueOf(device, measured) ?? '–',
  };
}
