import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import type { Collection, Database } from '../../db/database.js';
import { isTimeout, isWriteConflict } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { AppError } from '../../errors.js';
import { awaitLater } from '../../lib/promises.js';

/** First entry of work that any instance can complete after a crash. */
export interface JournalRoot {
  _id: Id;
  /** By the clock of the database: the last sign of life of the instance that carries the work out. */
  beat_at?: Date;
  /** Another instance has taken the work over. */
  replayed?: true;
  /** The work is complete, and its entry is kept for a while. */
  done?: boolean;
}

/** Journaled work of a process, by collection and root entry. */
export interface JournaledWork {
  /** Maintenance skips it, else requests for removals would answer 404. Settles when the work ends. */
  inProgress: Map<string, Promise<unknown>>;
  /** Begun and given up here: maintenance completes it at once. */
  abandoned: Set<string>;
}

interface JournalDeps {
  db: Database;
  journaled: JournaledWork;
}

const beat_ms = 1000;
/** Without a sign of life for so long, another instance takes the work over. */
const beat_timeout_ms = 5000;

const keyOf = (journal: Collection, root: Id) => `${journal.collectionName} ${root}`;

/** Saves the first entry with the time of the database. @param session the transaction that the entry belongs to */
export async function saveRoot(journal: Collection, root: JournalRoot, session?: mongo.ClientSession): Promise<void> {
  const { _id, ...fields } = root;
  const entry = { $set: { ...toLiterals(fields), beat_at: '$$NOW' } };
  await journal.updateOne({ _id }, [entry], { upsert: true, ...(session && { session }) });
}

/** Values of an update pipeline that are not to be read as expressions. */
export function toLiterals(fields: object): object {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, { $literal: value }]));
}

/**
 * Carries out journaled work while other instances see that this one is alive. If the database fails, maintenance completes the
 * work. @throws what `work` throws
 */
export async function runJournaled<Result>(
  { db, journaled: { inProgress, abandoned } }: JournalDeps,
  journal: Collection,
  root: Id,
  work: () => Promise<Result>,
): Promise<Result> {
  const key = keyOf(journal, root);
  const running = awaitLater(withHeartbeat(journal, root, work));
  inProgress.set(key, running);
  try {
    return await running;
  } catch (error) {
    if (!(error instanceof AppError) && !isTimeout(error) && !isWriteConflict(error)) {
      abandoned.add(key);
      db.markNotReady();
    }
    throw error;
  } finally {
    inProgress.delete(key);
  }
}

/**
 * Completes work whose instance shows no sign of life, and work that this process has given up, which comes first: an instance
 * may wait for it while this one waits for that instance.
 */
export async function resumeJournaled(
  { db, journaled: { inProgress, abandoned } }: JournalDeps,
  journal: Collection,
  roots: readonly Id[],
  resume: (root: Id) => Promise<unknown>,
): Promise<void> {
  const givenUp = [...abandoned].filter((key) => key.startsWith(`${journal.collectionName} `));
  const isGivenUp = (root: Id) => givenUp.includes(keyOf(journal, root));
  const waiting = roots.filter((root) => !inProgress.has(keyOf(journal, root)));
  const sorted = [...waiting.filter(isGivenUp), ...waiting.filter((root) => !isGivenUp(root))];
  for (const root of sorted) {
    if (!(await takeOver(journal, root, isGivenUp(root)))) continue;
    await db.endIdleTransactions();
    await withHeartbeat(journal, root, () => resume(root));
  }
  for (const key of givenUp) abandoned.delete(key);
}

/** Waits, unless the service is ready, for work that a failure of the database did not end, because the driver repeated it. */
export async function waitForJournaled({ db, journaled }: JournalDeps, stopped: AbortSignal): Promise<void> {
  if (db.readState().isReady || stopped.aborted) return;
  const ended = new AbortController();
  await Promise.race([
    Promise.allSettled(journaled.inProgress.values()).then(() => ended.abort()),
    once(stopped, 'abort', { signal: ended.signal }).catch(() => undefined),
  ]);
}

const silent = { $expr: { $lte: ['$beat_at', { $subtract: ['$$NOW', beat_timeout_ms] }] } };

/**
 * Waits until work shows a sign of life or has been silent for `beat_timeout_ms`.
 * @param isGivenUp by this process: it is not waited for @returns whether this instance carries it out from now on
 */
async function takeOver(journal: Collection, root: Id, isGivenUp: boolean): Promise<boolean> {
  const takeover = [{ $set: { beat_at: '$$NOW', replayed: true } }];
  for (let seen: Date | undefined; ; await sleep(beat_ms / 2)) {
    const { matchedCount } = await journal.updateOne({ _id: root, ...(!isGivenUp && silent) }, takeover);
    if (matchedCount === 1) return true;
    const entry = await journal.findOne({ _id: root }, { projection: { beat_at: 1, done: 1 } });
    // the first entry is deleted before the others
    if (entry === null) return true;
    const { beat_at, done } = entry as Partial<JournalRoot>;
    if (done === true) return false;
    if (seen !== undefined && beat_at !== undefined && beat_at > seen) return false;
    seen ??= beat_at;
  }
}

async function withHeartbeat<T>(journal: Collection, root: Id, work: () => Promise<T>): Promise<T> {
  const beat = () => journal.updateOne({ _id: root }, [{ $set: { beat_at: '$$NOW' } }]);
  const timer = setInterval(() => void beat().catch(() => undefined), beat_ms);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}
