import { createLookup } from '../db/batching/lookup.js';
import { type ClusteredDocument, readRanges } from '../db/clustered.js';
import type { Database, StoredObject } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findMany, runPipeline } from '../db/raw-find.js';
import { createShares } from '../lib/shares.js';
import {
  buildFilter,
  findLastValue,
  findReceiptAfter,
  keyOfStream,
  type StoredValue,
  type StreamingDevice,
  toStoredValue,
  type ValueQuery,
} from '../objects/values/stream-values.js';
import { device as deviceType, stream } from '../resources/index.js';
import { type DataPath, readPath } from '../schema/data-path.js';

/** Deadlines of a device, which give its status, and what changes with each of its data streams. */
type DeviceState = StoredObject & { stream_due_at?: number; status_due_at?: number; stream_revision?: Id };

export type FactReader = ReturnType<typeof createFactReader>;

const max_ranges = 250;
/** Reads of one device at a time: few need them. */
const max_single = 12;

/** Creates the reader of what conditions are about. Evaluations share commands (docs/decisions/0008-batched-commands.md). */
export function createFactReader(db: Database) {
  const single = createShares({ capacity: max_single, max_waiting: Number.POSITIVE_INFINITY });
  const findNewest = createLookup<StreamRange, ClusteredDocument>({
    fetch: (ranges) => findNewestStreams(db, ranges),
    keyOf: keyOfRange,
    maxBatchSize: max_ranges,
  });
  const findDevice = createLookup<Id, DeviceState>({
    async fetch(ids) {
      const projection = { stream_due_at: 1, status_due_at: 1, stream_revision: 1 };
      const devices = db.collection<DeviceState>(deviceType.plural);
      const found = await findMany(devices, { _id: { $in: [...ids] } }, { projection });
      return new Map(found.map((each) => [keyOfId(each._id), each]));
    },
    keyOf: keyOfId,
    maxBatchSize: max_ranges,
  });

  const reader = {
    /** Finds the value of the data stream with the greatest `at` that has the path. */
    async findLastValue(device: StreamingDevice, query: ValueQuery): Promise<StoredValue | undefined> {
      const { path, ignored, ...times } = query;
      const newest = await findNewest({ device, times });
      if (newest === undefined) return undefined;
      const value = readPath(newest.data, path);
      const isLast = value !== undefined && ignored?.has(keyOfStream(newest)) !== true;
      return isLast ? toStoredValue(newest, value) : single.run(device.account, () => findLastValue(db, device, query));
    },
    /** Finds out when a data stream with the path was received after `since` (epoch seconds): a lower bound of the last time. */
    async findReceipt(device: StreamingDevice, path: DataPath, since: number): Promise<number | undefined> {
      const newest = await reader.findLastValue(device, { path, until: Number.MAX_VALUE });
      if (newest === undefined || newest.received_at > since) return newest?.received_at;
      // it may have come late: the order of streams is not that of their receipt
      return single.run(device.account, () => findReceiptAfter(db, device, path, since));
    },
    findDevice,
  };
  return reader;
}

/** Data streams of a device between two times. */
interface StreamRange {
  device: StreamingDevice;
  times: Pick<ValueQuery, 'after' | 'n' | 'from' | 'until'>;
}

function keyOfRange({ device, times: { after, n, from, until } }: StreamRange): string {
  return `${keyOfId(device._id)} ${after} ${n} ${from} ${until}`;
}

/** Finds the last stream of each range. @returns by `keyOfRange` */
async function findNewestStreams(
  db: Database,
  ranges: readonly StreamRange[],
): Promise<ReadonlyMap<string, ClusteredDocument>> {
  const conditions = ranges.map(({ device, times }) => buildFilter(device, times));
  const last = (index: number) => [
    { $sort: { _id: -1 } },
    { $limit: 1 },
    { $project: { data: 1, index: { $literal: index } } },
  ];
  const pipeline = readRanges(stream.plural, conditions, last);
  // a reply of exactly as many would leave the cursor open
  const options = { batchSize: ranges.length + 1 };
  const documents = await runPipeline<ClusteredDocument>(db.collection(stream.plural), pipeline, options);
  return new Map(
    documents.flatMap((document) => {
      const range = ranges[Number(document.index)];
      return range === undefined ? [] : [[keyOfRange(range), document] as const];
    }),
  );
}
