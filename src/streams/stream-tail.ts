import { setTimeout as sleep } from 'node:timers/promises';
import {
  ChangeHistoryLost,
  type ChangeStream,
  formatClusterTime,
  long_scan_ms,
  openChangeStream,
  parseClusterTime,
  readClusterTime,
} from '../db/change-stream.js';
import type { Database, Log } from '../db/database.js';
import type { KeyLimit } from '../db/reach.js';
import { AppError } from '../errors.js';
import type { FeedQuery, FeedSource, LogReader } from '../http/live/feed.js';
import { formatFrame } from '../http/live/frames.js';
import { createTail, type FeedEntry, type FeedPosition, type TailReader } from '../http/live/tail.js';
import { awaitLater } from '../lib/promises.js';
import type { Store } from '../objects/context.js';
import { type Ancestors, createAncestorLookup, isBelow } from '../objects/tree/ancestors.js';
import { stream } from '../resources/index.js';
import { getDocument, getString, getTimestamp } from '../serialize/bson.js';
import { projectionOf } from '../serialize/projections.js';

/** A stored stream as live feeds hand it out. */
export interface StreamEntry extends FeedEntry {
  device: string;
  kind: string;
  /** The objects above the device, where a reader asks for them. */
  ancestors?: Ancestors;
}

export interface StreamFilter {
  /** The limit of the reader. */
  limit?: KeyLimit | undefined;
  device?: string;
  _t?: string;
  ancestors: Ancestors;
}

export interface StreamQuery extends FeedQuery<StreamEntry> {
  filter: StreamFilter;
}

export type StreamFeedSource = FeedSource<StreamEntry, StreamQuery>;

type Prepare = (entries: readonly StreamEntry[], isNeeded: (account: string) => boolean) => Promise<void> | undefined;

const projection = projectionOf(stream, 'list');
/** Inserts of one moment are numbered with two digits of base 36, which sort as text. */
const [ordinal_base, ordinal_length] = [36, 2];
const max_ordinal = ordinal_base ** ordinal_length - 1;
/** Changes of one read of a reader's own: streams may be large. */
const log_batch_size = 100;
const opening_limit_ms = 1000;
export const streamFeedIdPattern = /^[0-9a-f]{16}[0-9a-z]{2}$/;

/** Creates the source of feeds of stored streams: MongoDB's log of changes (reference/events.md#live-feeds). */
export function createStreamSource(store: Store, log: Log): StreamFeedSource {
  const { db } = store;
  const findAncestors = createAncestorLookup(store);
  const prepare: Prepare = (entries, isNeeded) => {
    const incomplete = entries.filter(({ account, ancestors }) => ancestors === undefined && isNeeded(account));
    if (incomplete.length === 0) return undefined;
    return Promise.all(
      incomplete.map(async (entry) => {
        entry.ancestors = await findAncestors(entry.account, entry.device);
      }),
    ).then(() => undefined);
  };
  return {
    tail: createTail({ log, prepare, open: (from) => openReader(db, from) }),
    findCurrentId: async () => formatId(await readTime(db), max_ordinal),
    openLog: (query, after) => openStreamLog(db, query, after, prepare),
  };
}

const readTime = async (db: Database) => formatClusterTime(await readClusterTime(db));

function formatId(time: string, ordinal: number): string {
  return time + Math.min(ordinal, max_ordinal).toString(ordinal_base).padStart(ordinal_length, '0');
}

/** Begins behind everything that the first read finds: the token of that place says how far another one has to read. */
async function openReader(db: Database, from?: FeedPosition): Promise<TailReader<StreamEntry>> {
  let last_id = from?.id ?? formatId(await readTime(db), max_ordinal);
  let token = from?.token ?? '';
  const changes = await openChangeStream(db, {
    collection: stream.plural,
    pipeline: [onlyInserts, { $project: { clusterTime: 1, fullDocument: 1 } }],
    ...(from === undefined ? { startAt: parseClusterTime(last_id) } : { resumeToken: { _data: from.token } }),
  });
  const createEntries = createEntryNumbering(from?.id);

  async function read(): Promise<readonly StreamEntry[]> {
    const batch = await changes.next();
    token = batch.resumeToken._data;
    const entries = createEntries(batch.changes).filter(({ id }) => id > last_id);
    last_id = entries.at(-1)?.id ?? last_id;
    return entries;
  }

  if (from === undefined) await read().catch(closeAndThrow(changes));
  return {
    get position() {
      return { id: last_id, token };
    },
    next: read,
    close: changes.close,
  };
}

/** Opens a change stream of its own. @throws AppError badParameter (4004) if its beginning is lost */
async function openStreamLog(
  db: Database,
  query: StreamQuery,
  after: string,
  prepare: Prepare,
): Promise<LogReader<StreamEntry>> {
  const { account, filter, needsPreparation } = query;
  const closed = new AbortController();
  const changesAfter = {
    collection: stream.plural,
    pipeline: [onlyInserts, { $project: { clusterTime: 1, fullDocument: keepDocumentsOf(account, filter.device) } }],
    startAt: parseClusterTime(after),
    max_batch_size: log_batch_size,
    scan_limit_ms: long_scan_ms,
    signal: closed.signal,
  };
  const opening = awaitLater(openChangeStream(db, changesAfter).catch(reportLostHistory));
  // whether the beginning is lost is known at once; the first change may be far away
  await Promise.race([opening, sleep(opening_limit_ms, undefined, { ref: false })]);
  const createEntries = createEntryNumbering();
  return {
    async *read(until) {
      const changes = await opening;
      for (let reached = ''; reached < until.token; ) {
        const batch = await changes.next();
        reached = batch.resumeToken._data;
        const entries = createEntries(batch.changes);
        await prepare(entries, () => needsPreparation);
        yield entries;
      }
    },
    async close() {
      closed.abort();
      await opening.then((changes) => changes.close()).catch(() => undefined);
    },
  };
}

const onlyInserts = { $match: { operationType: 'insert' } };

/** Leaves out documents of others, but not their changes, which count when ids are made. */
function keepDocumentsOf(account: string, device: string | undefined): object {
  const isOfDevice = device === undefined ? [] : [{ $eq: ['$fullDocument._id.device', { $literal: device }] }];
  const isKept = { $and: [{ $eq: ['$fullDocument._id.account', { $literal: account }] }, ...isOfDevice] };
  return { $cond: [isKept, '$fullDocument', '$$REMOVE'] };
}

function closeAndThrow(changes: ChangeStream): (error: unknown) => Promise<never> {
  return async (error) => {
    await changes.close();
    throw error;
  };
}

function reportLostHistory(error: unknown): never {
  if (error instanceof ChangeHistoryLost)
    throw new AppError('badParameter', { after: 'is too old: the database has forgotten what came after it' });
  throw error;
}

/** Creates a function that makes entries of successive changes, the first of which follows the entry `last_id`. */
function createEntryNumbering(last_id = ''): (changes: readonly Uint8Array[]) => StreamEntry[] {
  let time = last_id.slice(0, -ordinal_length);
  let ordinal = time === '' ? 0 : Number.parseInt(last_id.slice(-ordinal_length), ordinal_base);
  return (changes) =>
    changes.flatMap((bson) => {
      const next_time = getTimestamp(bson, 'clusterTime') ?? '';
      ordinal = next_time === time ? ordinal + 1 : 0;
      time = next_time;
      const document = getDocument(bson, 'fullDocument');
      return document === undefined ? [] : [createStreamEntry(formatId(time, ordinal), document)];
    });
}

function createStreamEntry(id: string, bson: Buffer): StreamEntry {
  let frame: Buffer | undefined;
  const key = getDocument(bson, '_id') ?? bson;
  return {
    id,
    account: getString(key, 'account') ?? '',
    device: getString(key, 'device') ?? '',
    kind: getString(bson, '_t') ?? '',
    size_bytes: bson.length,
    frame() {
      frame ??= formatFrame(id, stream.name, bson, projection);
      return frame;
    },
  };
}

/** Creates the query of a feed. */
export function createStreamQuery(account: string, filter: StreamFilter): StreamQuery {
  const { limit, device, _t, ancestors: wanted } = filter;
  const isLimited = limit !== undefined && limit.field !== 'id_device';
  return {
    account,
    filter,
    needsPreparation: isLimited || Object.keys(wanted).length > 0,
    isWanted: ({ device: sender, kind, ancestors = {} }) =>
      (device === undefined || sender === device) &&
      (_t === undefined || kind === _t) &&
      isBelow(ancestors, wanted) &&
      (limit === undefined || { ...ancestors, id_device: sender }[limit.field] === limit.id_developer),
  };
}
