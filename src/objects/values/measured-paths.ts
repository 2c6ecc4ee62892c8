import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, DatabaseAccess, StoredObject } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { releaseLease, takeLease } from '../../db/leases.js';
import { findMany, hasMatch } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import { filterPathsOf } from '../../resources/measure.js';
import { model } from '../../resources/model.js';
import type { Values } from '../../schema/fields.js';
import type { OperationContext } from '../context.js';

/** A path that models of an account filter by. */
export interface MeasuredPath {
  _id: Id;
  account: string;
  /** JSON Pointer. */
  path: string;
  /** The values of devices are to be read from their streams, not before this time (epoch milliseconds); absent: done. */
  fill_at?: number;
}

export const measured_paths = 'measured_paths';
const max_paths = 30;
/** Longer than a write of a model takes; after a crash others wait for it. */
const lease_ms = 10_000;
const wait_ms = 3000;
const pause_ms = 20;
/** Paths of other processes are known after this time. */
export const cache_ms = 1000;

/** The paths that lists of devices can be filtered by. */
export const measuredPathsOf = (db: DatabaseAccess) => db.collection<MeasuredPath>(measured_paths);

/**
 * Runs a write of models with the paths that it declares, unless the account would have more than 30 different ones.
 * @param written matches the models that are written, whose former paths do not count @throws AppError invalid (4003)
 */
export async function withMeasuredPaths<T>(
  { store, account }: OperationContext,
  values: Values,
  write: () => Promise<T>,
  written?: object,
): Promise<T> {
  const { db } = store;
  const paths = filterPathsOf(values.measures);
  if (paths.length === 0) return write();
  return store.changeMutex(`${measured_paths} ${account}`, () =>
    withLease(db, account, async () => {
      const others = await findPathsByModel(db, account, written && { $nor: [written] });
      assertFewPaths([...others.values(), paths]);
      await alignPaths(db, account, paths);
      return write();
    }),
  );
}

/** @throws AppError invalid (4003) if an account would have too many different paths */
export function assertFewPaths(declared: readonly (readonly string[])[]): void {
  if (new Set(declared.flat()).size > max_paths)
    throw new AppError('invalid', { measures: `would exceed the ${max_paths} paths with filter of an account` });
}

/** Lets work on the paths of an account take turns, those of other instances too. @throws AppError database (5031) */
async function withLease<T>(db: Database, account: string, work: () => Promise<T>): Promise<T> {
  const [name, holder] = [`${measured_paths} ${account}`, randomUUID()];
  const end = performance.now() + wait_ms;
  while ((await takeLease(db, { name, holder, lasts_ms: lease_ms, tag: '' })) === undefined) {
    if (performance.now() > end) throw new AppError('database');
    await sleep(pause_ms);
  }
  try {
    return await work();
  } finally {
    await releaseLease(db, name, holder);
  }
}

/** Gives up the paths that no model of an account declares any more. */
export function removeUnusedPaths(db: Database, account: string): Promise<void> {
  return withLease(db, account, () => alignPaths(db, account, []));
}

/** Keeps the paths that models declare, and those that one is about to declare. */
async function alignPaths(db: Database, account: string, added: readonly string[]): Promise<void> {
  const declared = await findPathsByModel(db, account);
  const used = [...new Set([...declared.values(), added].flat())];
  const paths = measuredPathsOf(db);
  const fill_at = Date.now() + 2 * cache_ms;
  const inserts = used.map((path) => {
    const update = { $setOnInsert: { _id: db.newId(), fill_at } };
    return { updateOne: { filter: { account, path }, update, upsert: true } };
  });
  if (inserts.length > 0) await paths.bulkWrite(inserts, { ordered: false });
  await paths.deleteMany({ account, path: { $nin: used } });
}

/** Finds the paths with `filter` of the models of an account that have some, by identifier. */
export async function findPathsByModel(
  db: Database,
  account: string,
  where: object = {},
): Promise<ReadonlyMap<string, readonly string[]>> {
  const filter = { account, filter_paths: { $exists: true }, ...where };
  const collection = db.collection<StoredObject & { filter_paths: string[] }>(model.plural);
  const models = await findMany(collection, filter, { projection: { id_developer: 1, filter_paths: 1 } });
  return new Map(models.map(({ id_developer, filter_paths }) => [id_developer, filter_paths]));
}

/** Finds out which of some paths are a measure with `filter` of any model. */
export async function findDeclared(db: Database, account: string, paths: readonly string[]): Promise<Set<string>> {
  const models = db.collection(model.plural);
  const areFound = await Promise.all(paths.map((path) => hasMatch(models, { account, filter_paths: path })));
  return new Set(paths.filter((_, index) => areFound[index]));
}
