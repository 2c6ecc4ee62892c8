import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import {
  ChangeHistoryLost,
  type ChangeStream,
  long_scan_ms,
  openChangeStream,
  parseChange,
  type ResumeToken,
  readClusterTime,
} from '../db/change-stream.js';
import type { DatabaseAccess, Log } from '../db/database.js';
import { startLeasedJob, type Turn } from '../db/leased-job.js';
import { findAccounts } from '../objects/api-keys.js';
import { tombstonesOf } from '../objects/tree/tombstones.js';
import { deriveEvents, type LoggedChange, loggedChanges } from './derive.js';
import { appendEvents, writeEventId } from './store.js';
import { createSubjects } from './subjects.js';

export interface LogMetrics {
  written(count: number): void;
  /** All changes before this time (epoch milliseconds) are in the log; undefined while another instance reads. */
  readUntil(moment: number | undefined): void;
}

interface Deps {
  db: DatabaseAccess;
  log: Log;
  metrics: LogMetrics;
}

/** Stored progress of the log reader. */
interface Position {
  _id: 'position';
  /** Reads on from here: after a change, or from a time on. */
  start: { resumeToken: ResumeToken } | { startAt: mongo.Timestamp };
  last_id: string;
  /** All changes before this time have been read. */
  at: Date;
  /** A gap that is about to be reported. */
  gap?: Gap;
}

/** A time of which the database no longer had the changes. */
interface Gap {
  from: Date;
  to: Date;
  /** Cluster time of the first change after the gap. */
  resumes_at: mongo.Timestamp;
}

/** Every read is followed by two durable writes; events are listed within 2 s of the change. */
const cycle_ms = 400;
/** The position is saved at least so often, so that it stays within the database's log of changes. */
const save_period_ms = 10_000;
const purge_period_ms = 60_000;
/** Tombstones stay this long after they have been read, for events below the deleted objects. */
const tombstone_ms = 600_000;

const positions = (db: DatabaseAccess) => db.collection<Position>('event_log');

/** Begins the log with the first change after this call, unless it has begun. */
export async function beginLog(db: DatabaseAccess): Promise<void> {
  const start = { startAt: await readClusterTime(db) };
  await positions(db).updateOne(
    { _id: 'position' },
    { $setOnInsert: { start, last_id: '', at: new Date() } },
    { upsert: true },
  );
}

/**
 * Keeps the event log up to date (reference/events.md#operation). Of all instances one reads the database's log of changes.
 * Ids depend on the change alone, so two readers write an event once.
 */
export function startLogReader({ db, log, metrics }: Deps): { stop(): Promise<void> } {
  async function work(turn: Turn): Promise<void> {
    const position = await positions(db).findOne({ _id: 'position' });
    if (position === null) return beginLog(db);
    if (position.gap !== undefined) return closeGap(position.gap);
    let stream: ChangeStream;
    try {
      const limits = { scan_limit_ms: long_scan_ms, signal: turn.signal };
      stream = await openChangeStream(db, { pipeline: loggedChanges, cycle_ms, ...limits, ...position.start });
    } catch (error) {
      if (!(error instanceof ChangeHistoryLost)) throw error;
      const gap = { from: position.at, to: new Date(), resumes_at: await readClusterTime(db) };
      await positions(db).updateOne({ _id: 'position' }, { $set: { gap } });
      return closeGap(gap);
    }
    try {
      await readStream(stream, position, turn);
    } finally {
      await stream.close();
    }
  }

  /** Reports a gap to every account, then reads on behind it. Repeating it writes the same events. */
  async function closeGap({ from, to, resumes_at }: Gap): Promise<void> {
    log.error({ from, to }, 'event log has a gap: the database no longer has the changes in between');
    const data = { from: from.getTime() / 1000, to: to.getTime() / 1000 };
    const accounts = (await findAccounts(db)).toSorted();
    // after all events before the gap, and before all others
    const t = (resumes_at.high >>> 0) - 1;
    const events = accounts.map((account, index) => ({
      _id: writeEventId(new mongoose.mongo.Timestamp({ t, i: index }), 0),
      account,
      type: 'log.gap',
      at: data.to,
      resource: 'log',
      id_developer: account,
      data,
    }));
    await appendEvents(db, events);
    const start = { startAt: resumes_at };
    const set = { start, last_id: events.at(-1)?._id ?? '', at: to };
    await positions(db).updateOne({ _id: 'position' }, { $set: set, $unset: { gap: '' } });
  }

  async function readStream(stream: ChangeStream, position: Position, turn: Turn): Promise<void> {
    const subjects = createSubjects(db);
    const ids = createEventIds(position.last_id);
    let { at: read_until } = position;
    let saved_at = 0;
    let purged_at = 0;
    while (turn.isLeaseHeld()) {
      const { changes: bson, resumeToken } = await stream.next();
      const changes = bson.map((change) => parseChange(change) as LoggedChange);
      const now = Date.now();
      const latest = changes.at(-1)?.wallTime;
      if (latest !== undefined || now - saved_at > save_period_ms) {
        const events = await deriveEvents(db, subjects, changes, ids.next);
        await appendEvents(db, events);
        read_until = latest ?? new Date(now);
        const set = { start: { resumeToken }, last_id: ids.last(), at: read_until };
        await positions(db).updateOne({ _id: 'position' }, { $set: set });
        saved_at = now;
        metrics.written(events.length);
      }
      metrics.readUntil(latest?.getTime() ?? now);
      if (now - purged_at > purge_period_ms) {
        await tombstonesOf(db).deleteMany({ at: { $lt: new Date(read_until.getTime() - tombstone_ms) } });
        purged_at = now;
      }
    }
    metrics.readUntil(undefined);
  }

  return startLeasedJob({ db, log, name: 'event-log', work });
}

/**
 * Waits until the changes before this call have their events; reads them if no instance does.
 * @returns false if this takes longer than `limit_ms`
 */
export async function finishLog(db: DatabaseAccess, log: Log, limit_ms: number): Promise<boolean> {
  const until = await readClusterTime(db);
  if (!(await hasUnread(db, until))) return true;
  const give_up_at = performance.now() + limit_ms;
  const reader = startLogReader({ db, log, metrics: { written() {}, readUntil() {} } });
  try {
    while (await hasUnread(db, until)) {
      if (performance.now() > give_up_at) return false;
      await sleep(cycle_ms);
    }
    return true;
  } finally {
    await reader.stop();
  }
}

/** Reports whether changes up to a time have no events yet. */
async function hasUnread(db: DatabaseAccess, until: mongo.Timestamp): Promise<boolean> {
  const position = await positions(db).findOne({ _id: 'position' });
  if (position === null) return false;
  if (position.gap !== undefined) return true;
  try {
    const limits = { cycle_ms, scan_limit_ms: long_scan_ms };
    const stream = await openChangeStream(db, { pipeline: loggedChanges, ...limits, ...position.start });
    const { changes } = await stream.next().finally(() => stream.close());
    return changes.some((change) => parseChange(change).clusterTime.lessThanOrEqual(until));
  } catch (error) {
    if (error instanceof ChangeHistoryLost) return true;
    throw error;
  }
}

/** Numbers the events: the cluster time of the change, and a count of the events of one time. */
function createEventIds(last_id: string) {
  let last = last_id;
  return {
    next(time: mongo.Timestamp): string {
      const first = writeEventId(time, 0);
      const isSameTime = last.slice(0, -2) === first.slice(0, -2);
      last = isSameTime ? writeEventId(time, Number.parseInt(last.slice(-2), 36) + 1) : first;
      return last;
    },
    last: () => last,
  };
}
