import { type Collection, type Database, read_limit_ms } from '../db/database.js';
import { isDuplicate } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { AppError } from '../errors.js';
import { filterPathsOf } from '../resources/measure.js';
import { model } from '../resources/model.js';
import type { Values } from '../schema/fields.js';
import type { OperationContext } from './context.js';

/** A path that models of an account filter by. A unique index on `slot` limits their number. */
export interface MeasuredPath {
  _id: Id;
  account: string;
  /** JSON Pointer. */
  path: string;
  slot: number;
  /** Writes in progress that may declare it, and when the last one began. */
  claims: number;
  claimed_at: Date;
  /** The values of devices are to be read from their streams, not before this time (epoch milliseconds); absent: done. */
  fill_at?: number;
}

export const measured_paths = 'measured_paths';
const max_paths = 30;
const tooManyPaths = { measures: `would exceed the ${max_paths} paths with filter of an account` };
/** A claim of a process that has crashed counts no longer. */
const claim_ms = 60_000;
/** Paths of other processes are known after this time. */
export const cache_ms = 1000;

/** The paths that lists of devices can be filtered by. */
export function measuredPathsOf(db: Database): Collection<MeasuredPath> {
  return db.collection<MeasuredPath>(measured_paths);
}

/**
 * Claims the paths that a write of a model declares, so that an account never has more than 30 of them.
 * @returns ends the claim, after the write @throws AppError invalid (4003)
 */
export async function claimMeasuredPaths(ctx: OperationContext, values: Values): Promise<() => Promise<void>> {
  const { store, account } = ctx;
  const claimed: string[] = [];
  const release = async () => {
    if (claimed.length === 0) return;
    await measuredPathsOf(store.db).updateMany({ account, path: { $in: claimed } }, { $inc: { claims: -1 } });
  };
  try {
    for (const path of filterPathsOf(values.measures)) {
      await claimPath(store.db, account, path);
      claimed.push(path);
    }
  } catch (error) {
    await release();
    throw error;
  }
  return release;
}

async function claimPath(db: Database, account: string, path: string): Promise<void> {
  const paths = measuredPathsOf(db);
  const claim = { $inc: { claims: 1 }, $set: { claimed_at: new Date() } };
  for (;;) {
    const { matchedCount } = await paths.updateOne({ account, path }, claim);
    if (matchedCount === 1) return;
    const slot = (await findFreeSlot(db, account)) ?? ((await removeUnusedPaths(db, account)) ? undefined : null);
    if (slot === null) throw new AppError('invalid', tooManyPaths);
    if (slot === undefined) continue;
    try {
      const fill_at = Date.now() + 2 * cache_ms;
      await paths.insertOne({ _id: db.newId(), account, path, slot, claims: 1, claimed_at: new Date(), fill_at });
      return;
    } catch (error) {
      // another request has taken the slot, or claimed the path
      if (!isDuplicate(error)) throw error;
    }
  }
}

async function findFreeSlot(db: Database, account: string): Promise<number | undefined> {
  const options = { projection: { slot: 1 }, maxTimeMS: read_limit_ms };
  const taken = new Set((await measuredPathsOf(db).find({ account }, options).toArray()).map(({ slot }) => slot));
  return Array.from({ length: max_paths }, (_, slot) => slot).find((slot) => !taken.has(slot));
}

/** Adds paths that a model would declare to those of the account. @throws AppError invalid (4003) if they are too many */
export async function simulateClaim(
  { store, account }: OperationContext,
  paths: readonly string[],
  declared: ReadonlySet<string> | undefined,
): Promise<ReadonlySet<string>> {
  const models = store.db.collection(model.plural);
  const present = declared ?? (await models.distinct('filter_paths', { account }, { maxTimeMS: read_limit_ms }));
  const after = new Set([...(present as Iterable<string>), ...paths]);
  if (after.size > max_paths) throw new AppError('invalid', tooManyPaths);
  return after;
}

/** Gives up paths that no model declares any more. @returns false if there is none */
export async function removeUnusedPaths(db: Database, account: string): Promise<boolean> {
  const paths = measuredPathsOf(db);
  const abandoned = { $or: [{ claims: { $lte: 0 } }, { claimed_at: { $lt: new Date(Date.now() - claim_ms) } }] };
  const candidates = await paths.find({ account, ...abandoned }, { maxTimeMS: read_limit_ms }).toArray();
  const declared = await findDeclared(
    db,
    account,
    candidates.map(({ path }) => path),
  );
  let isAnyFree = false;
  for (const { _id, path, claims, claimed_at } of candidates) {
    if (declared.has(path)) continue;
    // a claim since the look-up makes the condition fail
    const { deletedCount } = await paths.deleteOne({ _id, claims, claimed_at });
    if (deletedCount === 1) isAnyFree = true;
  }
  return isAnyFree;
}

/** Finds out which of some paths are a measure with `filter` of any model. */
export async function findDeclared(db: Database, account: string, paths: readonly string[]): Promise<Set<string>> {
  const models = db.collection(model.plural);
  const found = await Promise.all(
    paths.map((path) =>
      models.findOne({ account, filter_paths: path }, { projection: { _id: 1 }, maxTimeMS: read_limit_ms }),
    ),
  );
  return new Set(paths.filter((_, index) => found[index] !== null));
}
