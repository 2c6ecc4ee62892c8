import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Log } from '../db/database.js';
import type { FeedQuery, FeedSource, LogReader } from '../http/live/feed.js';
import { formatFrame } from '../http/live/frames.js';
import { createTail, type FeedEntry, type TailReader } from '../http/live/tail.js';
import type { Bson } from '../objects/page.js';
import { ancestorFields, type StoredEvent } from '../resources/event.js';
import { event } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { getNumber, getString } from '../serialize/bson.js';
import { projectionOf } from '../serialize/projections.js';
import { findEventsAfter, findLastEventId, readCurrentEventId } from './store.js';

/** An event as live feeds hand it out. */
export interface EventEntry extends FeedEntry {
  /** The fields that filters compare. */
  fields: Values;
  /** The event, as the event log has it. */
  stored(): StoredEvent;
}

export interface EventQuery extends FeedQuery<EventEntry> {
  /** Conditions of a list of events. */
  filter: Record<string, unknown>;
}

export type EventFeedSource = FeedSource<EventEntry, EventQuery>;

const period_ms = 250;
const page_length = 250;
/** The fields beside `at` that filters compare. */
const comparedTexts = ['type', 'resource', 'id_developer', 'user', ...ancestorFields];
const projection = projectionOf(event, 'list');

/** Creates the source of feeds of the event log, which is read once per process (reference/events.md#live-feeds). */
export function createEventSource(db: Database, log: Log): EventFeedSource {
  return {
    tail: createTail({ log, open: async (from) => openReader(db, from?.id ?? (await findLastEventId(db))) }),
    findCurrentId: () => readCurrentEventId(db),
    openLog: async (query, after) => openEventLog(db, query, after),
  };
}

function openReader(db: Database, from: string): TailReader<EventEntry> {
  const closed = new AbortController();
  let last_id = from;
  return {
    get position() {
      return { id: last_id, token: last_id };
    },
    async next() {
      await sleep(period_ms, undefined, { signal: closed.signal });
      const entries = (await findEventsAfter(db, { after: last_id, max: 1000 })).map(createEventEntry);
      last_id = entries.at(-1)?.id ?? last_id;
      return entries;
    },
    async close() {
      closed.abort();
    },
  };
}

function openEventLog(db: Database, { account, filter }: EventQuery, after: string): LogReader<EventEntry> {
  let last_id = after;
  return {
    async *read(until) {
      for (;;) {
        const conditions = { $and: [{ account }, filter] };
        const range = { filter: conditions, after: last_id, until: until.id, max: page_length };
        const entries = (await findEventsAfter(db, range)).map(createEventEntry);
        last_id = entries.at(-1)?.id ?? last_id;
        yield entries;
        if (entries.length < page_length) return;
      }
    },
    close: async () => undefined,
  };
}

function createEventEntry(bson: Bson): EventEntry {
  const id = getString(bson, '_id') ?? '';
  const fields: Values = { at: getNumber(bson, 'at') };
  for (const path of comparedTexts) fields[path] = getString(bson, path);
  let frame: Buffer | undefined;
  return {
    id,
    account: getString(bson, 'account') ?? '',
    size_bytes: bson.length,
    fields,
    stored: () => ({ ...fields, _id: id, account: getString(bson, 'account') }) as StoredEvent,
    frame() {
      frame ??= formatFrame(id, String(fields.type), bson, projection);
      return frame;
    },
  };
}
