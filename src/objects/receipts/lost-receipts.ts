import mongoose, { type mongo } from 'mongoose';
import { createLookup } from '../../db/batching/lookup.js';
import { type ClusteredDocument, readRanges } from '../../db/clustered.js';
import type { Collection, Database } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { findExpired, removeLease } from '../../db/leases.js';
import { findMany, runPipeline } from '../../db/raw-find.js';
import { readInBatches } from '../../lib/batches.js';
import { type DeadlineKind, deadlineKinds } from '../../resources/device/status.js';
import { device, stream } from '../../resources/index.js';
import { readReceipt } from '../../resources/stream-key.js';
import { getId, getNumber, getString } from '../../serialize/bson.js';
import type { StreamingDevice } from '../values/stream-values.js';
import { lease_prefix, max_age_s, max_lag_s, max_skew_s } from './deferred-receipts.js';
import { type DeadlineMove, extendDeadlines, reportIndexOf } from './device-deadlines.js';

const { MaxKey } = mongoose.mongo;

/** Devices that send fast have thousands of streams each in the time that is read. */
const batch_size = 100;

/** A device with its stored receipts. */
export type StoredReceipts = StreamingDevice & { [key in `last_${DeadlineKind}_at`]?: number };

const projection = { account: 1, id_developer: 1, last_stream_at: 1, last_status_at: 1 };
const kindOf: { [kind in DeadlineKind]: string } = { stream: 'str', status: 'sta' };

const devicesOf = (db: Database): Collection<StoredReceipts> => db.collection(device.plural);

/**
 * Stores the receipts of devices that only their streams and the memory of a process have.
 * @returns the ids of these devices
 */
async function storeReceipts(db: Database, devices: readonly StoredReceipts[]): Promise<readonly Id[]> {
  const moves = await findUnstored(db, devices);
  if (moves.length > 0) await extendDeadlines(db, moves, db.newId());
  return moves.flatMap(({ _id }) => _id ?? []);
}

/** Finds the receipts of streams that are later than the stored ones. */
async function findUnstored(db: Database, devices: readonly StoredReceipts[]): Promise<DeadlineMove[]> {
  const ends = devices.flatMap((sender) =>
    deadlineKinds.flatMap((kind) => {
      const last_at = sender[`last_${kind}_at`];
      return last_at === undefined ? [] : [{ sender, kind, last_at }];
    }),
  );
  const ranges = ends.map(({ sender: { _id: parent, account, id_developer }, kind, last_at }) => {
    const key = { account, device: id_developer };
    const $gte = { ...key, at: last_at - max_skew_s };
    const $lt = { ...key, at: last_at + max_lag_s + max_skew_s, n: new MaxKey() };
    return { _id: { $gte, $lt }, parent, _t: kindOf[kind], is_silent: null };
  });
  const last = (index: number) => [{ $group: { _id: { $literal: index }, n: { $max: '$_id.n' } } }];
  const streams = db.collection<ClusteredDocument>(stream.plural);
  const found = await runPipeline<{ _id: number; n: mongo.Long }>(streams, readRanges(stream.plural, ranges, last));
  const moves = new Map<StoredReceipts, DeadlineMove>();
  for (const { _id: index, n } of found) {
    const end = ends[Number(index)];
    const received = readReceipt(n.toBigInt());
    if (end === undefined || received <= end.last_at) continue;
    const { sender, kind } = end;
    const move = moves.get(sender) ?? { _id: sender._id, receipts: {}, hasNewRevision: false, mark: undefined };
    move.receipts[kind] = received;
    if (kind === 'stream') move.hasNewRevision = true;
    moves.set(sender, move);
  }
  return [...moves.values()];
}

/**
 * Stores the receipts that processes had in memory which have crashed: before the service is ready, or beside other instances
 * within half a minute, which is before a stored deadline passes.
 */
export async function saveLostReceipts(db: Database): Promise<void> {
  for (const { _id, until } of await findExpired(db, lease_prefix)) {
    const since = until.getTime() / 1000 - max_age_s;
    for (const kind of deadlineKinds) {
      const bounds = { [`${kind}_late`]: { $in: [false, true] }, [`${kind}_safe_until`]: { $gt: since } };
      const filter = { ...bounds, [`last_${kind}_at`]: { $gte: since } };
      const options = { projection, hint: reportIndexOf(kind), batchSize: batch_size };
      const recent = devicesOf(db).find(filter, options);
      for await (const devices of readInBatches(recent, batch_size)) await storeReceipts(db, devices);
    }
    await removeLease(db, _id);
  }
}

/** Stores the receipts of devices before streams of them are deleted. */
export async function saveReceiptsOf(db: Database, devices: readonly { _id: Id }[]): Promise<void> {
  const filter = { _id: { $in: devices.map(({ _id }) => _id) } };
  await storeReceipts(db, await findMany(devicesOf(db), filter, { projection }));
}

/** Brings a device that is shown by itself up to date. @returns true if it has to be read again */
export type StoreShown = (bson: Uint8Array, now: number) => Promise<true | undefined> | undefined;

/** Creates the function for all requests of a process: those at the same time share commands. */
export function createShownStorer(db: Database): StoreShown {
  const storeShown = createLookup<StoredReceipts, true>({
    async fetch(devices) {
      const stored = new Set((await storeReceipts(db, devices)).map(String));
      return new Map(devices.filter(({ _id }) => stored.has(String(_id))).map((each) => [keyOf(each), true]));
    },
    keyOf,
    maxBatchSize: 64,
    accountOf: ({ account }) => account,
  });
  return (bson, now) => {
    const isSending = deadlineKinds.some((kind) => (getNumber(bson, `last_${kind}_at`) ?? 0) > now - max_age_s);
    return isSending ? storeShown(readReceipts(bson)) : undefined;
  };
}

/** The same device may have been read by several requests, before and after its receipts were stored. */
function keyOf({ _id, last_stream_at, last_status_at }: StoredReceipts): string {
  return `${String(_id)} ${last_stream_at} ${last_status_at}`;
}

function readReceipts(bson: Uint8Array): StoredReceipts {
  const sender: StoredReceipts = {
    _id: getId(bson, '_id'),
    account: getString(bson, 'account') ?? '',
    id_developer: getString(bson, 'id_developer') ?? '',
  };
  for (const kind of deadlineKinds) {
    const last_at = getNumber(bson, `last_${kind}_at`);
    if (last_at !== undefined) sender[`last_${kind}_at`] = last_at;
  }
  return sender;
}
