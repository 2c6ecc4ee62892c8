import { LRUCache } from 'lru-cache';
import type { Database } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { device } from '../../resources/index.js';
import { findElement, getNumber, toBuffer } from '../../serialize/bson.js';
import { max_lag_s } from '../receipts/deferred-receipts.js';
import type { LastStream } from './stream-values.js';

type Bson = Uint8Array;

export type LastStreamCache = ReturnType<typeof createLastStreamCache>;

interface Entry extends LastStream {
  revision: string;
}

const max_bytes = 32 * 1024 * 1024;
const entry_bytes = 300;
/** Longer than a batch of streams takes, and clocks differ. */
const margin_s = 30;
/** Bounds what an instance of an earlier version, or one that crashes after a deletion, does not replace. */
const max_age_ms = 60_000;

/**
 * Creates the cache of last streams of devices by their `stream_revision`, which every instance replaces after it has deleted
 * data streams of a device, or stored some and the last before a while ago, and before it answers: a stream that was found after
 * a device was read is the last until then. Devices that keep sending are not cached: their receipts are stored later.
 */
export function createLastStreamCache() {
  const cache = new LRUCache<string, Entry>({
    maxSize: max_bytes,
    sizeCalculation: ({ data }) => data.length + entry_bytes,
    ttl: max_age_ms,
  });
  return {
    /** @param bson the device @param now epoch seconds */
    get(bson: Bson, now: number): LastStream | undefined {
      const entry = cache.get(readBytes(bson, '_id') ?? '');
      if (entry === undefined || entry.revision !== readBytes(bson, 'stream_revision')) return undefined;
      return entry.at <= now ? entry : undefined;
    },
    /** @param bson the device as it was read before the stream @param now epoch seconds */
    set(bson: Bson, { at, data }: LastStream, now: number): void {
      if ((getNumber(bson, 'last_stream_at') ?? 0) > now - max_lag_s - margin_s) return;
      const revision = readBytes(bson, 'stream_revision');
      // the bytes are part of a reply
      if (revision !== undefined) cache.set(readBytes(bson, '_id') ?? '', { at, data: Buffer.from(data), revision });
    },
  };
}

function readBytes(bson: Bson, key: string): string | undefined {
  const source = toBuffer(bson);
  const element = findElement(source, 0, key);
  return element && source.toString('latin1', element.start, element.end);
}

/** Has all instances look up the last streams of devices again. */
export async function replaceRevisions(db: Database, devices: readonly { _id: Id }[]): Promise<void> {
  const _id = { $in: devices.map((each) => each._id) };
  const change = { $set: { stream_revision: db.newId() } };
  await retryOnce(() => db.collection(device.plural).updateMany({ _id }, change));
}
