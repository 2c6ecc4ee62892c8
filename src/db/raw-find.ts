import type { mongo } from 'mongoose';
import { AppError } from '../errors.js';
import { readAhead } from '../lib/batches.js';
import { type Collection, read_limit_ms } from './database.js';
import { retryOnce } from './driver-errors.js';

type Bson = Uint8Array;

/** Batches of stored documents as BSON bytes of the database's replies. */
export interface RawCursor {
  batches: AsyncGenerator<readonly Bson[]>;
  /** The last batch has been read. */
  readonly exhausted: boolean;
}

/** Options of the `find` command. */
export interface RawQuery {
  filter: object;
  projection?: object;
  hint?: mongo.Hint;
  sort?: Readonly<Record<string, 1 | -1>>;
  skip?: number;
  limit?: number;
  maxTimeMS?: number;
  /** The cursor does not expire while its reader pauses. */
  noCursorTimeout?: boolean;
  readConcern?: { level: 'snapshot'; atClusterTime?: unknown } | undefined;
}

const max_reply_documents = 100_000;

/** Finds documents within the time limit of a read. */
export function findMany<T extends mongo.Document>(
  collection: Pick<Collection<T>, 'find'>,
  filter: mongo.Filter<T>,
  options: mongo.FindOptions = {},
): Promise<mongo.WithId<T>[]> {
  return collection.find(filter, { maxTimeMS: read_limit_ms, ...options }).toArray();
}

/** Finds one document within the time limit of a read. */
export async function findOne<T extends mongo.Document>(
  collection: Collection<T>,
  filter: mongo.Filter<T>,
  options: mongo.FindOptions = {},
): Promise<mongo.WithId<T> | undefined> {
  return (await collection.findOne(filter, { maxTimeMS: read_limit_ms, ...options })) ?? undefined;
}

/** Reports whether a document matches. */
export async function hasMatch<T extends mongo.Document>(
  collection: Collection<T>,
  filter: mongo.Filter<T>,
  options: mongo.FindOptions = {},
): Promise<boolean> {
  return (await findOne(collection, filter, { projection: { _id: 1 }, ...options })) !== undefined;
}

/** Waits until a majority has what was read before: a write that changes nothing waits for the last one of the primary. */
export async function confirmReads({ db, collectionName }: Pick<Collection, 'db' | 'collectionName'>): Promise<void> {
  await db.collection<{ none?: 1 }>(collectionName).updateOne({ _id: { $in: [] } }, { $unset: { none: 1 } });
}

/** Runs a pipeline within the time limit of a read. */
export function runPipeline<T extends mongo.Document>(
  { db, collectionName }: Pick<Collection, 'db' | 'collectionName'>,
  pipeline: readonly object[],
  options: mongo.AggregateOptions = {},
): Promise<T[]> {
  const limited = { maxTimeMS: read_limit_ms, ...options };
  return db
    .collection(collectionName)
    .aggregate<T>([...pipeline], limited)
    .toArray();
}

/** Finds all matching documents, which must fit into one reply (16 MiB), without the driver's cursor. */
export async function findAll<T extends mongo.Document>(collection: Collection<T>, query: RawQuery): Promise<T[]> {
  return (await findSnapshot(collection, query)).documents;
}

/** Finds one document as BSON. */
export async function findOneRaw(
  collection: Collection,
  filter: object,
  options: Omit<mongo.FindOptions, 'raw'> = {},
): Promise<Bson | undefined> {
  return (await findOne(collection, filter, { ...options, raw: true })) as unknown as Bson | undefined;
}

/** Finds one document as BSON. @throws AppError notFound (4041) */
export async function showOne(collection: Collection, filter: object): Promise<Bson> {
  const bson = await findOneRaw(collection, filter);
  if (bson === undefined) throw new AppError('notFound');
  return bson;
}

/** Finds like `findAll`. @returns also the time of a snapshot, at which other queries can read */
export async function findSnapshot<T extends mongo.Document>(
  collection: Collection<T>,
  { readConcern, ...query }: RawQuery,
): Promise<{ documents: T[]; atClusterTime: unknown }> {
  const { db, collectionName } = collection;
  const read = { find: collectionName, maxTimeMS: read_limit_ms, ...query, ...(readConcern && { readConcern }) };
  const find = { ...read, batchSize: max_reply_documents, singleBatch: true };
  const { cursor } = await retryOnce(() => db.command(find));
  return { documents: cursor.firstBatch, atClusterTime: cursor.atClusterTime };
}

/** Most documents of a reply; parsing more would block the event loop for too long. */
const max_batch_size = 250;
/** Bytes of a later reply, nearly: a list of large documents is read as fast as the client takes it. */
const batch_bytes = 1024 * 1024;

interface Reply {
  cursor: { id: mongo.Long; firstBatch?: Bson[]; nextBatch?: Bson[] };
}

/**
 * Runs `find` without the driver's cursor, which parses every document before it returns the bytes
 * (docs/decisions/0005-one-serializer-from-bson.md).
 * @param first_batch_size documents of the first reply; a list that fits in it needs no second command
 * @param limits replaces the time limit of each command; the signal ends a command in progress; replies have
 * `reply_documents`, and up to 16 MiB
 */
export function findRaw(
  collection: Pick<Collection, 'db' | 'collectionName'>,
  query: RawQuery,
  first_batch_size = max_batch_size,
  limits: { socketTimeoutMS?: number; signal?: AbortSignal | undefined; reply_documents?: number } = {},
): RawCursor {
  const { db, collectionName } = collection;
  const { reply_documents, ...commandLimits } = limits;
  let exhausted = false;

  async function* batches(): AsyncGenerator<readonly Bson[]> {
    const session = db.client.startSession({ causalConsistency: false });
    const runCommand = (command: object) =>
      db.command(command, {
        session,
        promoteLongs: false,
        fieldsAsRaw: { firstBatch: true, nextBatch: true },
        ...commandLimits,
      }) as unknown as Promise<Reply>;
    // a batch of exactly `limit` documents would leave the cursor open
    const { limit = max_batch_size } = query;
    const firstSize = reply_documents ?? Math.min(limit + 1, first_batch_size);
    const find = { find: collectionName, ...query, batchSize: firstSize };
    let id: mongo.Long | undefined;
    try {
      const first = await retryOnce(() => runCommand(find));
      for (let { cursor } = first; ; ) {
        id = cursor.id;
        exhausted = id.isZero();
        const documents = cursor.firstBatch ?? cursor.nextBatch ?? [];
        const batchSize = reply_documents ?? countFitting(documents);
        if (documents.length > 0) yield documents;
        if (exhausted) return;
        ({ cursor } = await runCommand({ getMore: id, collection: collectionName, batchSize }));
      }
    } finally {
      if (id !== undefined && !exhausted)
        await db.command({ killCursors: collectionName, cursors: [id] }, { session }).catch(() => undefined);
      await session.endSession();
    }
  }
  return {
    batches: batches(),
    get exhausted() {
      return exhausted;
    },
  };
}

/** Reads all documents in replies of up to 16 MiB, each while the caller works on the one before. */
export function readLargeBatches(
  collection: Pick<Collection, 'db' | 'collectionName'>,
  query: RawQuery,
  reply_documents: number,
): AsyncGenerator<readonly Bson[]> {
  return readAhead(findRaw(collection, query, undefined, { reply_documents }).batches);
}

/** Returns how many documents of the size of these a reply holds. */
export function countFitting(documents: readonly Bson[]): number {
  const bytes = documents.reduce((sum, { length }) => sum + length, 0);
  const fitting = Math.floor((batch_bytes * documents.length) / Math.max(bytes, 1));
  return Math.min(Math.max(fitting, 1), max_batch_size);
}
