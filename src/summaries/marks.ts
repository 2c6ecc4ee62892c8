import { LRUCache } from 'lru-cache';
import type { mongo } from 'mongoose';
import type { RangeCondition } from '../db/clustered.js';
import type { Database } from '../db/database.js';
import { hasOnlyDuplicates } from '../db/driver-errors.js';
import { type Id, keyOfId } from '../db/ids.js';
import { runPipeline } from '../db/raw-find.js';
import { stream } from '../resources/index.js';
import { buildHourKey, type Hour, hour_s, late_s, roundToHour, settle_s, summariesOf } from './hours.js';

/** Marks hours whose streams are about to change: until they are summarised again, series read their streams. */
export async function writeMarks(db: Database, hours: readonly Hour[], now: number): Promise<void> {
  if (hours.length === 0) return;
  const writes = hours.map((hour) => {
    const { account, parent } = hour;
    const update = { $set: { account, parent, mark: db.newId() }, $max: { due_at: now + settle_s } };
    return { updateOne: { filter: { _id: buildHourKey(hour) }, update, upsert: true } };
  });
  const write = () => summariesOf(db).bulkWrite(writes, { ordered: false });
  await write().catch((error: unknown) => {
    // another instance has marked the same hour for the first time
    if (!hasOnlyDuplicates(error)) throw error;
    return write();
  });
}

/** A stream whose device is known. */
interface Stored {
  _id: { account: string; device: string; at: mongo.Double };
  parent: Id | undefined;
  _t: unknown;
}

/** Returns the hours of data streams, by a text that is unique for each. */
export function findHours(streams: Iterable<Stored>, before = Number.POSITIVE_INFINITY): Map<string, Hour> {
  const hours = new Map<string, Hour>();
  for (const { _id, parent, _t } of streams) {
    if (_id.at.value >= before || _t !== 'str' || parent === undefined) continue;
    const { account, device } = _id;
    const at = roundToHour(_id.at.value);
    hours.set(`${at} ${keyOfId(parent)}`, { account, device, parent, at });
  }
  return hours;
}

/** Marks the hours of the data streams that match, before they are deleted. */
export async function writeMarksOfMatching(
  db: Database,
  condition: RangeCondition,
  device: Omit<Hour, 'at'>,
  now: number,
): Promise<void> {
  const hour = { $subtract: ['$_id.at', { $mod: ['$_id.at', hour_s] }] };
  const pipeline = [{ $match: condition }, { $match: { _t: 'str' } }, { $group: { _id: hour } }];
  const found = await runPipeline<{ _id: number }>(db.collection(stream.plural), pipeline);
  const hours = found.map(({ _id: at }) => ({ ...device, at }));
  await writeMarks(db, hours, now);
}

const max_cached = 50_000;
/** A mark is still good for this part of its time when streams are stored, and for less when they have been. */
const [fresh_s, stored_s] = [settle_s / 3, (2 * settle_s) / 3];

/** Marks the hours of streams that come late. */
export interface LateMarker {
  /** Runs before streams are stored. */
  begin(streams: readonly Stored[]): Promise<void>;
  /** Runs when they are, before their senders are answered: a process may have stood still in between. */
  end(streams: readonly Stored[]): Promise<void>;
}

/** Creates the marker of a process. @param clock epoch milliseconds */
export function createLateMarker(db: Database, clock: () => number): LateMarker {
  const markedAt = new LRUCache<string, number>({ max: max_cached });
  async function mark(streams: readonly Stored[], max_age_s: number): Promise<void> {
    // a clock that is wrong is not to take late streams for others
    const now = (clock() - db.readState().clock_offset_ms) / 1000;
    const hours = [...findHours(streams, roundToHour(now - late_s))].filter(
      ([key]) => (markedAt.get(key) ?? Number.NEGATIVE_INFINITY) < now - max_age_s,
    );
    await writeMarks(
      db,
      hours.map(([, hour]) => hour),
      now,
    );
    for (const [key] of hours) markedAt.set(key, now);
  }
  return { begin: (streams) => mark(streams, fresh_s), end: (streams) => mark(streams, stored_s) };
}
