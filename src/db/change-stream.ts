import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import type { DatabaseAccess } from './database.js';
import { hasCode } from './driver-errors.js';

/** Formats a time of the database's log as 16 hexadecimal digits: 8 of the seconds, 8 of the increment. */
export function formatClusterTime(time: mongo.Timestamp): string {
  return [time.getHighBitsUnsigned(), time.getLowBitsUnsigned()]
    .map((part) => part.toString(16).padStart(8, '0'))
    .join('');
}

/** Parses the text of `formatClusterTime`. */
export function parseClusterTime(digits: string): mongo.Timestamp {
  const [t, i] = [digits.slice(0, 8), digits.slice(8, 16)].map((part) => Number.parseInt(part, 16));
  return new mongoose.mongo.Timestamp({ t: t ?? 0, i: i ?? 0 });
}

const limit_ms = 30_000;
const poll_ms = 50;

/** Reads the database's current time: writes acknowledged before the call have no greater one, later writes have. */
export function readClusterTime(db: DatabaseAccess): Promise<mongo.Timestamp> {
  return waitForOperationTime(() => db.command({ ping: 1, maxTimeMS: 1000 }));
}

/**
 * Repeats a command until its reply has an operationTime: for some 0.4 s after its start, a mongod whose clients log in has
 * not read the keys that sign times, and leaves it out. @throws Error if it never comes, as from a standalone server
 */
export async function waitForOperationTime(command: () => Promise<mongo.Document>): Promise<mongo.Timestamp> {
  for (const end = performance.now() + limit_ms; ; await sleep(poll_ms)) {
    const { operationTime } = await command();
    if (operationTime !== undefined) return operationTime;
    if (performance.now() > end) throw new Error('the database does not tell its time; it has to be a replica set');
  }
}

const { BSON } = mongoose.mongo;

/** Time in which a reader of long ago finds its first change: there may be many of others in between. */
export const long_scan_ms = 60_000;

/** A position in the database's log of changes. `_data` of a later position sorts after that of an earlier one. */
export interface ResumeToken {
  _data: string;
}

/** Changes that were read together, as BSON, and the position behind them. */
export interface ChangeBatch {
  changes: readonly Uint8Array[];
  resumeToken: ResumeToken;
}

export type ChangeStream = Awaited<ReturnType<typeof openChangeStream>>;

export interface ChangeStreamOptions {
  /** Reads the changes of one collection; default: of all. */
  collection?: string;
  /** Stages behind `$changeStream`, which keep `_id`. */
  pipeline: readonly object[];
  /** Further options of the stage `$changeStream`, such as `fullDocumentBeforeChange`. */
  stage?: object;
  /** Begins behind this position. */
  resumeToken?: ResumeToken;
  /** Begins with the changes of this time; default: now. */
  startAt?: mongo.Timestamp;
  max_batch_size?: number;
  /** Changes are collected for this long, as a read costs the database as much as dozens of them; default: 150. */
  cycle_ms?: number;
  /** Time in which the database finds a batch behind a position of long ago; default: the time-out of a socket. */
  scan_limit_ms?: number;
  /** Ends the opening. */
  signal?: AbortSignal;
}

/** MongoDB's log of changes no longer reaches back to the position at which a stream was to begin. */
export class ChangeHistoryLost extends Error {
  override name = 'ChangeHistoryLost';
}

/** CappedPositionLost, ChangeStreamFatalError, ChangeStreamHistoryLost */
const isPositionLost = hasCode(136, 280, 286);

/** Time that the database waits for a change, well below the time-out of a socket. */
const await_ms = 1000;
const default_batch_size = 1000;

interface Reply {
  cursor: {
    id: mongo.Long;
    ns: string;
    firstBatch?: Uint8Array[];
    nextBatch?: Uint8Array[];
    postBatchResumeToken: ResumeToken;
  };
}

function buildPipeline({ pipeline, stage, resumeToken, startAt }: ChangeStreamOptions): readonly object[] {
  const begin = resumeToken ? { startAfter: resumeToken } : startAt && { startAtOperationTime: startAt };
  return [{ $changeStream: { ...stage, ...begin } }, ...pipeline];
}

/** Runs a command whose changes stay BSON. @throws ChangeHistoryLost */
async function runCommand(database: mongo.Db, command: object, options: object): Promise<Reply> {
  const raw = { promoteLongs: false, fieldsAsRaw: { firstBatch: true, nextBatch: true }, ...options };
  try {
    return (await database.command(command, raw)) as unknown as Reply;
  } catch (error) {
    if (!isPositionLost(error)) throw error;
    throw new ChangeHistoryLost('the log of changes does not reach back far enough', { cause: error });
  }
}

/**
 * Opens a change stream with commands of its own: the driver's stream parses every change by itself and reads once per
 * change while they come one by one. @throws ChangeHistoryLost
 */
export async function openChangeStream(db: DatabaseAccess, options: ChangeStreamOptions) {
  const { collection, max_batch_size = default_batch_size, cycle_ms = 150, scan_limit_ms, signal: opening } = options;
  const { db: database } = db.collection(collection ?? 'events');
  const session = database.client.startSession({ causalConsistency: false });
  const stopped = new AbortController();
  let is_behind = true;
  const read = (command: object, signal?: AbortSignal) =>
    runCommand(database, command, {
      session,
      ...(signal && { signal }),
      ...(is_behind && scan_limit_ms !== undefined && { socketTimeoutMS: scan_limit_ms }),
    });
  const aggregate = { aggregate: collection ?? 1, pipeline: buildPipeline(options) };
  let first: Reply | undefined = await read(
    { ...aggregate, cursor: { batchSize: max_batch_size } },
    opening ?? stopped.signal,
  ).catch(async (error: unknown) => {
    await session.endSession();
    throw error;
  });
  const { id, ns } = first.cursor;
  const source = ns.slice(ns.indexOf('.') + 1);
  let read_at_ms = 0;

  async function readMore(): Promise<Reply> {
    const pause_ms = read_at_ms + cycle_ms - performance.now();
    if (!is_behind && pause_ms > 0) await sleep(pause_ms, undefined, { signal: stopped.signal });
    const reply = await read(
      { getMore: id, collection: source, batchSize: max_batch_size, maxTimeMS: await_ms },
      stopped.signal,
    );
    read_at_ms = performance.now();
    return reply;
  }

  return {
    /**
     * Reads the next batch. An empty one is returned after a second without changes: its position is later all the same.
     * @throws ChangeHistoryLost; other errors end the stream too: open another one at the last position
     */
    async next(): Promise<ChangeBatch> {
      const { cursor } = first ?? (await readMore());
      first = undefined;
      const changes = cursor.nextBatch ?? cursor.firstBatch ?? [];
      // the collection was dropped
      if (cursor.id.isZero() && changes.length === 0) throw new Error('the change stream has ended');
      is_behind = changes.length === max_batch_size;
      return { changes, resumeToken: cursor.postBatchResumeToken };
    },
    /** Ends the stream, and a `next` in progress with an error. */
    async close(): Promise<void> {
      stopped.abort();
      await read({ killCursors: source, cursors: [id] }).catch(() => undefined);
      await session.endSession();
    },
  };
}

/** A change as MongoDB describes it. */
export interface Change {
  operationType: string;
  clusterTime: mongo.Timestamp;
  [member: string]: unknown;
}

/** Parses a change. `serialize/bson.ts` reads members, such as `fullDocument`, without parsing the rest. */
export function parseChange(bson: Uint8Array): Change {
  return BSON.deserialize(bson, { promoteLongs: false }) as Change;
}
