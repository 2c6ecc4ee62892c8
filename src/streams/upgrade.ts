import type { mongo } from 'mongoose';
import type { Collection, DatabaseAccess } from '../db/database.js';
import { isExistingNamespace } from '../db/driver-errors.js';
import type { UpgradeContext } from '../db/gate.js';
import type { Id } from '../db/ids.js';
import { clusteredOptions } from '../db/indexes.js';
import { findOneRaw, readLargeBatches } from '../db/raw-find.js';
import { insertIfAbsent } from '../db/raw-insert.js';
import { runInParallel } from '../lib/parallel.js';
import { ignore } from '../lib/promises.js';
import { stream } from '../resources/index.js';
import { getId } from '../serialize/bson.js';
import { convertStreams, keyOf, updateNumber } from './convert-streams.js';

/** The copy in progress; it replaces the collection when it is complete. */
const copy = `${stream.plural}_upgrade`;
const position_id = 'streams-upgrade';
/** Documents of one reply and insert, which ends long before a socket times out; so many at most are copied again. */
const reply_documents = 5000;
/** Rejected documents that are compared with the stored ones at a time. */
const max_concurrent = 16;
const report_period_ms = 5000;

/** Progress of a copy. */
interface Position {
  _id: string;
  /** The last stream that is copied. */
  after: Id;
  copied: number;
}

/**
 * Copies streams of version 0.2.0, an index beside a heap, into a clustered collection, in order of their creation: what was
 * copied before an interruption is not copied again.
 */
export async function upgradeStreams(db: DatabaseAccess, context: UpgradeContext): Promise<void> {
  const streams = db.collection(stream.plural);
  if (await isClustered(streams)) return;
  await streams.db.createCollection(copy, clusteredOptions).catch(ignore(isExistingNamespace));
  await copyStreams(db, context);
  context.signal.throwIfAborted();
  await streams.db.collection(copy).rename(stream.plural, { dropTarget: true });
  await positionsIn(db).deleteOne({ _id: position_id });
}

async function isClustered(streams: Pick<mongo.Collection, 'options'>): Promise<boolean> {
  return 'clusteredIndex' in (await streams.options());
}

function positionsIn(db: DatabaseAccess) {
  return db.collection<mongo.Document & Position>('maintenance');
}

async function copyStreams(db: DatabaseAccess, context: UpgradeContext): Promise<void> {
  const { db: database } = db.collection(stream.plural);
  const last = await positionsIn(db).findOne({ _id: position_id });
  const report = createReport(context, await db.collection(stream.plural).estimatedDocumentCount(), last?.copied ?? 0);
  let copied = last?.copied ?? 0;
  const filter = last === null ? {} : { _id: { $gt: last.after } };
  const query = { filter, sort: { _id: 1 }, noCursorTimeout: true } as const;
  for await (const documents of readLargeBatches(db.collection(stream.plural), query, reply_documents)) {
    context.signal.throwIfAborted();
    await insertOnce(database, convertStreams(documents));
    copied += documents.length;
    const after = getId(documents.at(-1) as Uint8Array, '_id');
    await positionsIn(db).updateOne({ _id: position_id }, { $set: { after, copied } }, { upsert: true });
    await report(copied);
  }
}

/** Inserts streams but those that an interrupted copy has inserted. */
async function insertOnce(db: mongo.Db, documents: readonly Uint8Array[]): Promise<void> {
  const copies = db.collection(copy);
  for (let rejected = await insertIfAbsent(db, copy, documents); rejected.length > 0; ) {
    const others: Uint8Array[] = [];
    await runInParallel(rejected, max_concurrent, async (document) => {
      const stored = await findOneRaw(copies as unknown as Collection, { _id: keyOf(document) });
      // two streams with the same number
      if (stored === undefined || Buffer.compare(stored, document) !== 0) others.push(updateNumber(document));
    });
    rejected = others.length === 0 ? [] : await insertIfAbsent(db, copy, others);
  }
}

/** Creates a function that reports the progress, and logs it now and then. */
function createReport(
  { log, report }: UpgradeContext,
  total: number,
  before: number,
): (copied: number) => Promise<void> {
  const startedAt = performance.now();
  let reported_at = Number.NEGATIVE_INFINITY;
  return async (copied) => {
    const now = performance.now();
    const percent = Math.floor((100 * copied) / Math.max(total, copied, 1));
    await report(`streams: ${percent} %`);
    if (now - reported_at < report_period_ms && copied < total) return;
    reported_at = now;
    const rate = (copied - before) / (now - startedAt);
    const remaining_s = Math.ceil(Math.max(0, total - copied) / rate / 1000);
    log.info({ copied, total, percent, remaining_s }, `streams are being upgraded: ${percent} %`);
  };
}
