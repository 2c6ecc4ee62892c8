import { read_limit_ms, type StoredObject } from '../../db/database.js';
import { isTimeout } from '../../db/driver-errors.js';
import { protectedBy } from '../../db/indexes.js';
import type { QueryPlan } from '../../db/query-plan.js';
import { findRaw } from '../../db/raw-find.js';
import { withTransaction } from '../../db/transaction.js';
import { AppError } from '../../errors.js';
import type { Values } from '../../schema/fields.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { Resource } from '../../schema/resource.js';
import { toPlainJson } from '../../serialize/plain-json.js';
import type { OperationContext } from '../context.js';
import { assertChangeable, checkPlace } from '../limits.js';
import { planMatches } from '../lists.js';
import type { Bson } from '../page.js';
import { assertUnprotected, findReferences } from '../references.js';
import { showResource } from '../resources.js';
import { withClaims } from '../write-hooks.js';
import type { BulkAction } from './action.js';
import type { BulkQuery } from './bulk-journal.js';
import {
  applyChange,
  assertConfirmed,
  atomic_limit_ms,
  type BulkChange,
  finishChange,
  hasStoredDependency,
  max_atomic,
  planUpdates,
  settleReferences,
} from './change.js';
import { applyInPieces } from './journaled-change.js';

/** The objects that match, and those that were changed. */
export interface BulkResult {
  matched: number;
  changed: number;
}

/** Counts the objects that a change would affect. @throws AppError invalid (4003) */
export async function countMatches(
  ctx: OperationContext,
  resource: Resource,
  request: ListRequest,
  values: Values | undefined,
): Promise<number> {
  const { change, query } = await prepareChange(ctx, resource, { request, values });
  await withClaims(ctx, resource, change.values ?? {}, async () => undefined, query.filter);
  await assertMatchesValid(ctx, change, query);
  return count(ctx, resource.plural, query);
}

/** Looks up what a change refers to and which objects it is of. @throws AppError invalid (4003) */
async function prepareChange(
  ctx: OperationContext,
  resource: Resource,
  selection: BulkSelection,
): Promise<{ change: BulkChange; query: BulkQuery }> {
  const { request, values } = await protectNamed(ctx, resource, selection);
  const references = await findReferences(ctx, resource, values ?? {});
  const query = await planMatches(ctx, resource, request);
  if (values === undefined) await assertMatchesUnprotected(ctx, resource, query);
  return { change: { resource, values, references }, query };
}

/** @throws AppError invalid (4003) if others need an object that matches */
async function assertMatchesUnprotected(
  ctx: OperationContext,
  { plural }: Resource,
  { filter, hint }: QueryPlan,
): Promise<void> {
  if (!protectedBy.has(plural)) return;
  const options = { projection: { id_developer: 1 }, ...(hint && { hint }), maxTimeMS: read_limit_ms };
  const matches = await ctx.store.db.collection<StoredObject>(plural).find(filter, options).toArray();
  await assertUnprotected(
    ctx,
    plural,
    matches.map(({ id_developer }) => id_developer),
  );
}

/** Checks an update against the first 1,000 objects that match, if they decide whether it is valid. @throws AppError invalid (4003) */
async function assertMatchesValid(
  ctx: OperationContext,
  change: BulkChange,
  { filter, hint }: BulkQuery,
): Promise<void> {
  if (!hasStoredDependency(change)) return;
  const query = { filter, ...(hint && { hint }), limit: max_atomic, maxTimeMS: read_limit_ms };
  for await (const documents of findRaw(ctx.store.db.collection(change.resource.plural), query).batches)
    await planUpdates(ctx, change, documents as readonly Bson[]);
}

/**
 * Changes or deletes all objects that match, if they are exactly `confirmed` (reference/bulk.md). @param values the fields to
 * change; undefined deletes @param onGone as for `removeTree` @throws AppError invalid (4003), conflict (4005) with the number of matches; then nothing is changed
 */
export async function applyToMatches(
  ctx: OperationContext,
  resource: Resource,
  request: ListRequest,
  { confirmed, onGone, ...asChange }: { values: Values | undefined; confirmed: number; onGone?: () => void },
): Promise<BulkResult> {
  const { change, query } = await prepareChange(ctx, resource, { request, ...asChange });
  return applyConfirmed(ctx, confirmed, (apply) =>
    withClaims(ctx, resource, change.values ?? {}, () => apply(ctx, change, query, confirmed, onGone), query.filter),
  );
}

/** Counts the objects that an action would be carried out for. */
export async function countSelected(ctx: OperationContext, resource: Resource, request: ListRequest): Promise<number> {
  return count(ctx, resource.plural, await planMatches(ctx, resource, request));
}

/** Carries out an action for all objects that match, as `applyToMatches` changes them. */
export async function applyActionToMatches(
  ctx: OperationContext,
  resource: Resource,
  request: ListRequest,
  { confirmed, ...asAction }: { values: Values; action: BulkAction; confirmed: number },
): Promise<BulkResult> {
  const change: BulkChange = { resource, references: new Map(), ...asAction };
  const query = await planMatches(ctx, resource, request);
  return applyConfirmed(ctx, confirmed, (apply) => apply(ctx, change, query, confirmed));
}

async function applyConfirmed(
  { store }: OperationContext,
  confirmed: number,
  run: (apply: typeof applyAtOnce) => Promise<number>,
): Promise<BulkResult> {
  try {
    const changed = await run(confirmed <= max_atomic ? applyAtOnce : applyInPieces);
    return { matched: confirmed, changed };
  } catch (error) {
    if (!(error instanceof AppError) && !isTimeout(error)) store.db.markNotReady();
    throw error;
  }
}

/** The objects to change, and how; without `values` they are deleted. */
interface BulkSelection {
  request: ListRequest;
  values: Values | undefined;
}

/**
 * Protects the object that the operation is limited to, which alone of its type can match, from being deleted or moved.
 * @throws AppError forbidden (4031) if it matches
 */
async function protectNamed(
  ctx: OperationContext,
  resource: Resource,
  selection: BulkSelection,
): Promise<BulkSelection> {
  assertChangeable(ctx, resource);
  const { limit } = ctx;
  const { request, values } = selection;
  const isMove = resource.parents.some((field) => typeof values?.[field] === 'string');
  if (limit?.plural !== resource.plural || (values !== undefined && !isMove)) return selection;
  if ((await count(ctx, resource.plural, await planMatches(ctx, resource, request))) === 0)
    return { request: { ...request, filter: { ...request.filter, id_developer: { $in: [] } } }, values };
  if (values === undefined) throw new AppError('forbidden');
  const stored = toPlainJson(await showResource(ctx, resource, limit.id_developer));
  return { request, values: checkPlace(ctx, resource, stored, values) };
}

function count(ctx: OperationContext, plural: string, { filter, hint }: BulkQuery): Promise<number> {
  return ctx.store.db.collection(plural).countDocuments(filter, { ...(hint && { hint }), maxTimeMS: read_limit_ms });
}

/** Changes objects in one transaction. @throws AppError conflict (4005) if the objects that match are not `confirmed` */
async function applyAtOnce(
  ctx: OperationContext,
  change: BulkChange,
  query: BulkQuery,
  confirmed: number,
  onGone?: () => void,
): Promise<number> {
  const { db, changeMutex } = ctx.store;
  const { plural } = change.resource;
  const applied = await changeMutex(`${plural} ${ctx.account}`, async () => {
    // counted before, so that nothing is written in vain
    const matched = await count(ctx, plural, query);
    if (matched !== confirmed) await assertMatchesValid(ctx, change, query);
    assertConfirmed(confirmed, matched);
    return withTransaction(db.collection(plural), atomic_limit_ms, async (session) => {
      const outcome = await applyChange(ctx, change, query, { session });
      assertConfirmed(confirmed, outcome.changed);
      return outcome;
    });
  });
  await finishChange(ctx, change, applied, onGone);
  await settleReferences(ctx, change);
  return applied.changed;
}
