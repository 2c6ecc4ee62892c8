import type { mongo } from 'mongoose';
import { formatClusterTime, readClusterTime } from '../../src/db/change-stream.js';
import type { DatabaseAccess } from '../../src/db/database.js';
import { appendEvents, writeEventId } from '../../src/events/store.js';
import type { StoredEvent } from '../../src/resources/event.js';
import { waitFor } from './process.js';
import type { Api, TestService } from './service.js';

/** An event as it is listed. */
export interface ListedEvent {
  id: string;
  type: string;
  at: number;
  resource: string;
  id_developer: string;
  user?: string;
  request_id?: string;
  data?: Record<string, unknown>;
  [ancestor: `id_${string}`]: string | undefined;
}

/** Lists events, oldest first, until there are `count`. */
export function waitForEvents(api: Api, query: string, count: number): Promise<ListedEvent[]> {
  const list = async (): Promise<ListedEvent[]> => (await api.get(`/events/?${query}&order=1`)).body.result;
  return waitFor(list, (events) => events.length >= count);
}

/** Returns a function that appends events with ids of their own, behind all others; `n` in their data counts them. */
export function createAppender(ctx: { service: Pick<TestService, 'db'> }) {
  let count = 0;
  return async (...events: Partial<StoredEvent>[]): Promise<StoredEvent[]> => {
    const { db } = ctx.service;
    const time = formatClusterTime(await readTimeOfChange(db));
    const stored = events.map((event, at): StoredEvent => {
      const type = event.type ?? 'device.updated';
      const [resource = ''] = type.split('.');
      return {
        _id: time + (at % 256).toString(16).padStart(2, '0'),
        account: 'acme',
        ...{ type, at: 1700000000.25, resource, id_developer: 'Pump@acme', user: 'alice', data: { n: count++ } },
        ...event,
      };
    });
    await appendEvents(db, stored);
    return stored;
  };
}

/** Makes a change, as behind every event. @returns its time */
export async function readTimeOfChange(db: Pick<DatabaseAccess, 'collection' | 'command'>): Promise<mongo.Timestamp> {
  await db.collection('changes').updateOne({}, { $inc: { count: 1 } } as object, { upsert: true });
  return readClusterTime(db as DatabaseAccess);
}

/** Writes events of an account to the log, with ids of `time`, or that ascend from `from` on. @returns the ids */
export async function logEvents(
  { db }: Pick<TestService, 'db'>,
  events: readonly Partial<StoredEvent>[],
  { account = 'acme', from = 1, time }: { account?: string; from?: number; time?: mongo.Timestamp } = {},
): Promise<string[]> {
  const stored = events.map(
    (event, index): StoredEvent => ({
      _id: time === undefined ? buildEventId(from + index) : writeEventId(time, index),
      account,
      type: 'device.created',
      at: 1_700_000_000.123,
      resource: (event.type ?? 'device.created').split('.')[0] ?? '',
      id_developer: `pump ${from + index}@${account}`,
      user: 'alice',
      ...event,
    }),
  );
  await appendEvents(db, stored);
  return stored.map(({ _id }) => _id);
}

/** The id of the event number `index` of a test: written in the year 2026. */
export function buildEventId(index: number): string {
  return `69214e6f${index.toString(16).padStart(8, '0')}00`;
}
