import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import type { Collection } from '../db/database.js';
import type { Id } from '../db/ids.js';

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

const beat_ms = 1000;
/** Without a sign of life for so long, another instance takes the work over. */
const beat_timeout_ms = 5000;

/** Saves the first entry with the time of the database. @param session the transaction that the entry belongs to */
export async function saveRoot(journal: Collection, root: JournalRoot, session?: mongo.ClientSession): Promise<void> {
  const { _id, ...fields } = root;
  const entry = { $set: { ...literals(fields), beat_at: '$$NOW' } };
  await journal.updateOne({ _id }, [entry], { upsert: true, ...(session && { session }) });
}

/** Values of an update pipeline that are not to be read as expressions. */
function literals(fields: object): object {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, { $literal: value }]));
}

// entries of version 0.1.0 have no `beat_at`
const lastBeat = { $ifNull: ['$beat_at', new Date(0)] };
const silent = { $expr: { $lte: [lastBeat, { $subtract: ['$$NOW', beat_timeout_ms] }] } };

/** Reports whether the instance that carries out work has shown no sign of life for `beat_timeout_ms`. */
export async function isSilent(journal: Collection, root: Id): Promise<boolean> {
  return (await journal.findOne({ _id: root, ...silent }, { projection: { _id: 1 } })) !== null;
}

/**
 * Waits until work shows a sign of life or has been silent for `beat_timeout_ms`.
 * @param isAbandoned this process has given the work up: it is not waited for
 * @returns whether this instance carries it out from now on
 */
export async function takeOver(journal: Collection, root: Id, isAbandoned = false): Promise<boolean> {
  const claim = [{ $set: { beat_at: '$$NOW', replayed: true } }];
  for (let seen: Date | undefined; ; await sleep(beat_ms / 2)) {
    const { matchedCount } = await journal.updateOne({ _id: root, ...(!isAbandoned && silent) }, claim);
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

/**
 * Puts work that this process has given up first: others wait for it while this process may be waiting for theirs.
 * @returns the first entries that are not in progress in this process
 */
export function sortWork(
  roots: readonly Id[],
  inProgress: ReadonlySet<string>,
  abandoned: ReadonlySet<string>,
): readonly Id[] {
  const waiting = roots.filter((root) => !inProgress.has(String(root)));
  const isAbandoned = (root: Id) => abandoned.has(String(root));
  return [...waiting.filter(isAbandoned), ...waiting.filter((root) => !isAbandoned(root))];
}

/** Shows other instances, while `work` runs, that this one carries it out. */
export async function withHeartbeat<T>(journal: Collection, root: Id, work: () => Promise<T>): Promise<T> {
  const beat = () => journal.updateOne({ _id: root }, [{ $set: { beat_at: '$$NOW' } }]);
  const timer = setInterval(() => void beat().catch(() => undefined), beat_ms);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}
