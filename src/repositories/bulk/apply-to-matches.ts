import type { mongo } from 'mongoose';
import { read_limit_ms } from '../../db/database.js';
import { isTimeout } from '../../db/driver-errors.js';
import { planQuery, type QueryPlan } from '../../db/query-plan.js';
import { AppError } from '../../errors.js';
import type { Values } from '../../schema/fields.js';
import type { Resource } from '../../schema/resource.js';
import type { ListRequest } from '../../schema/validation.js';
import { replayRemovals } from '../cascade-delete.js';
import type { OperationContext } from '../context.js';
import { hooksByType } from '../lists.js';
import { findMissingReferences, findReferences, type References } from '../references.js';
import { buildNodeProjection, describeNode } from '../removed-nodes.js';
import { applyChange, type BulkChange, finishChange } from './change.js';
import { runChange, saveChange } from './journaled-change.js';
import { isConflict, withTransaction } from './transaction.js';

/** The objects that match, and those that were changed. */
export interface BulkResult {
  matched: number;
  changed: number;
}

/** Objects that are changed in one transaction, all or none. Larger changes are journaled and done in pieces. */
const max_atomic = 1000;
/** Attempts of a transaction that others get ahead of, such as the streams of the devices in it. */
const max_attempts = 8;

/** Counts the objects that a change would affect. @throws AppError invalid (4003) for missing references */
export async function countMatches(
  ctx: OperationContext,
  resource: Resource,
  request: ListRequest,
  values: Values = {},
): Promise<number> {
  await findReferences(ctx, resource, values);
  return count(ctx, resource, await plan(ctx, resource, request));
}

/**
 * Changes or deletes all objects that match, if they are exactly `confirmed` (reference/bulk.md). @param values the fields to
 * change; undefined deletes @throws AppError invalid (4003), conflict (4005) with the number of matches; then nothing is changed
 */
export async function applyToMatches(
  ctx: OperationContext,
  resource: Resource,
  request: ListRequest,
  { values, confirmed }: { values: Values | undefined; confirmed: number },
): Promise<BulkResult> {
  const references = await findReferences(ctx, resource, values ?? {});
  const change: BulkChange = { resource, values, references };
  const query = await plan(ctx, resource, request);
  try {
    const changed = await changeAtOnce(ctx, change, query, confirmed).catch(async (error: unknown) => {
      if (!isConflict(error)) throw error;
      return undefined;
    });
    const result = { matched: confirmed, changed: changed ?? (await changeInPieces(ctx, change, query, confirmed)) };
    await verifyReferences(ctx, resource, references);
    return result;
  } catch (error) {
    if (!(error instanceof AppError) && !isTimeout(error)) ctx.store.db.markNotReady();
    throw error;
  }
}

async function plan(ctx: OperationContext, resource: Resource, request: ListRequest): Promise<QueryPlan> {
  await hooksByType.get(resource.plural)?.prepare?.(ctx, request);
  return planQuery(resource, ctx.account, request);
}

function count(
  { store }: OperationContext,
  { plural }: Resource,
  { filter, hint }: QueryPlan,
  session?: mongo.ClientSession,
): Promise<number> {
  const options = { ...(hint && { hint }), ...(session && { session }), maxTimeMS: read_limit_ms };
  return store.db.collection(plural).countDocuments(filter, options);
}

/** Changes up to `max_atomic` objects in one transaction. @returns undefined if there are more */
async function changeAtOnce(
  ctx: OperationContext,
  change: BulkChange,
  query: QueryPlan,
  confirmed: number,
): Promise<number | undefined> {
  if (confirmed > max_atomic) return undefined;
  const collection = ctx.store.db.collection(change.resource.plural);
  const removals = await withTransaction(collection, max_attempts, async (session) => {
    const options = {
      session,
      projection: buildNodeProjection(change.resource.plural),
      limit: confirmed + 1,
      maxTimeMS: read_limit_ms,
    };
    const found = await collection
      .find(query.filter, { ...options, ...(query.hint && { hint: query.hint }) })
      .toArray();
    if (found.length !== confirmed)
      throw new AppError('conflict', { matched: await count(ctx, change.resource, query, session) });
    const nodes = found.map((document) => describeNode(change.resource.plural, document));
    return applyChange(ctx, change, nodes, session);
  });
  await finishChange(ctx, change, removals);
  return confirmed;
}

async function changeInPieces(
  ctx: OperationContext,
  change: BulkChange,
  query: QueryPlan,
  confirmed: number,
): Promise<number> {
  return runChange(ctx, change, await saveChange(ctx, change, query, confirmed));
}

/**
 * Objects that were moved below a parent which is being removed are removed with it; a model that is being removed is
 * detached again.
 */
async function verifyReferences(ctx: OperationContext, resource: Resource, references: References): Promise<void> {
  const missing = await findMissingReferences(ctx, resource, references);
  if (Object.keys(missing).length === 0) return;
  await replayRemovals(ctx.store, [...references.values()]);
}
