import type { mongo } from 'mongoose';
import { isDuplicate, isMissingNamespace } from './driver-errors.js';

/**
 * Replaces all collections of a database. They are loaded under other names and renamed once all are complete; from the
 * moment on at which `phase` is `replacing`, any process can finish the renaming, and none can go back.
 */
interface Restore {
  _id: 'restore';
  /** Names the attempt. */
  attempt: string;
  phase: 'loading' | 'replacing';
  /** Collections to rename. */
  names: readonly string[];
  /** Last sign of life, by the clock of the database. */
  beat_at: Date;
}

const prefix = 'restoring.';
const beat_ms = 1000;
/** Without a sign of life for so long, a restore counts as interrupted. */
const beat_timeout_ms = 10_000;

/** Collections about running processes: neither backed up nor replaced. */
export const processCollections: ReadonlySet<string> = new Set([
  'event_log',
  'instances',
  'leases',
  'maintenance',
  'mqtt_instances',
  'mqtt_messages',
  'mqtt_wills',
]);

/** Returns the name under which a collection is loaded. */
export function toLoadingName(collection: string): string {
  return prefix + collection;
}

/** Reports whether a collection was created by a restore that has not ended. */
export function isLoadingName(collection: string): boolean {
  return collection.startsWith(prefix);
}

const markerOf = (db: mongo.Db) => db.collection<Restore>('maintenance');
const isSilent = { $lte: ['$beat_at', { $subtract: ['$$NOW', beat_timeout_ms] }] };

/** Finds the restore in progress or interrupted. */
export async function findRestore(db: mongo.Db): Promise<(Restore & { isAlive: boolean }) | undefined> {
  const stages = [{ $match: { _id: 'restore' } }, { $set: { isAlive: { $not: [isSilent] } } }];
  const [found] = await markerOf(db).aggregate<Restore & { isAlive: boolean }>(stages).toArray();
  return found;
}

/** The right to replace the collections of a database. */
export interface ReplacementClaim {
  /** Replaces all collections by the loaded ones; others get empty. @param assertAlone throws to give up */
  replace(names: readonly string[], assertAlone: () => Promise<void>): Promise<void>;
  /** Gives up; the loaded collections are dropped. No effect after `replace`. */
  release(): Promise<void>;
}

/**
 * Claims a database for a restore, after completing one that was interrupted while it replaced.
 * @returns undefined while another process restores
 */
export async function acquireReplacement(db: mongo.Db, attempt: string): Promise<ReplacementClaim | undefined> {
  const earlier = await findRestore(db);
  if (earlier?.isAlive) return undefined;
  if (earlier?.phase === 'replacing') await finishReplacement(db, earlier);
  const marker = markerOf(db);
  const isFree = { $and: [isSilent, { $ne: ['$phase', 'replacing'] }] };
  const claimed = { attempt, phase: 'loading', names: [], beat_at: '$$NOW' };
  const set = Object.fromEntries(
    Object.entries(claimed).map(([key, value]) => [key, { $cond: [isFree, value, `$${key}`] }]),
  );
  try {
    const options = { upsert: true, returnDocument: 'after' } as const;
    const now = await marker.findOneAndUpdate({ _id: 'restore' }, [{ $set: set }], options);
    if (now?.attempt !== attempt) return undefined;
  } catch (error) {
    if (isDuplicate(error)) return undefined;
    throw error;
  }
  // once silent, it never comes back to life: another process may have relied on its end
  const own: mongo.Filter<Restore> = { _id: 'restore', attempt, $expr: { $not: [isSilent] } };
  const timer = setInterval(() => {
    void marker.updateOne(own, [{ $set: { beat_at: '$$NOW' } }]).catch(() => undefined);
  }, beat_ms).unref();
  let isDecided = false;
  await dropLoaded(db);
  return {
    async replace(names, assertAlone) {
      const existing = await listNames(db);
      const others = existing.filter((name) => !names.includes(name) && !isLoadingName(name));
      for (const name of others) await db.createCollection(toLoadingName(name));
      const all = [...names, ...others];
      await assertAlone();
      const decided = [{ $set: { phase: 'replacing', names: all, beat_at: '$$NOW' } }];
      const { matchedCount } = await marker.updateOne({ ...own, phase: 'loading' }, decided);
      if (matchedCount === 0) throw new Error('the restore was silent for too long and has lost its claim');
      isDecided = true;
      clearInterval(timer);
      await finishReplacement(db, { attempt, names: all });
    },
    async release() {
      clearInterval(timer);
      if (isDecided) return;
      await dropLoaded(db);
      await marker.deleteOne({ _id: 'restore', attempt, phase: 'loading' });
    },
  };
}

/**
 * Renames what an interrupted restore had loaded completely. Safe if several processes do so at once: each rename happens
 * once, because it takes its source away.
 */
export async function finishReplacement(
  db: mongo.Db,
  { attempt, names }: Pick<Restore, 'attempt' | 'names'>,
): Promise<void> {
  for (const name of names) {
    await db.renameCollection(toLoadingName(name), name, { dropTarget: true }).catch((error: unknown) => {
      if (!isMissingNamespace(error)) throw error;
    });
  }
  await markerOf(db).deleteOne({ _id: 'restore', attempt });
}

/** Drops what an earlier restore has loaded and not renamed. */
async function dropLoaded(db: mongo.Db): Promise<void> {
  const collections = await db.listCollections({}, { nameOnly: true }).toArray();
  for (const { name } of collections) if (isLoadingName(name)) await db.dropCollection(name);
}

/** Lists the collections that belong to a backup. */
async function listNames(db: mongo.Db): Promise<string[]> {
  const collections = await db.listCollections({ type: 'collection' }, { nameOnly: true }).toArray();
  return collections
    .map(({ name }) => name)
    .filter((name) => !processCollections.has(name) && !name.startsWith('system.'));
}
