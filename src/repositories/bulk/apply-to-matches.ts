import type { mongo } from 'mongoose';
import { read_limit_ms } from '../../db/database.js';
import { isTimeout } from '../../db/driver-errors.js';
import { planQuery, type QueryPlan } from '../../db/query-plan.js';
import { AppError } from '../../errors.js';
import type { Values } from '../../schema/fields.js';
import type { Resource } from '../../schema/resource.js';
import type { ListRequest } from '../../schema/validation.js';
import type { OperationContext } from '../context.js';
import { hooksByType } from '../lists.js';
import { findReferences } from '../references.js';
import { buildNodeProjection, describeNode, type NodeRef } from '../removed-nodes.js';
import { applyChange, type BulkChange, finishChange, verifyReferences } from './change.js';
import { applyInPieces } from './journaled-change.js';
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
  return count(ctx, resource.plural, await plan(ctx, resource, request));
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
    const isDone = confirmed <= max_atomic && (await changeAtOnce(ctx, change, query, confirmed));
    if (!isDone) await applyInPieces(ctx, change, query, confirmed);
    return { matched: confirmed, changed: confirmed };
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
  plural: string,
  { filter, hint }: QueryPlan,
  session?: mongo.ClientSession,
): Promise<number> {
  const options = { ...(hint && { hint }), ...(session && { session }), maxTimeMS: read_limit_ms };
  return store.db.collection(plural).countDocuments(filter, options);
}

/**
 * Changes objects in one transaction. @returns false if others have got ahead of each attempt, or have claimed an object
 * @throws AppError conflict (4005) if the objects that match are not `confirmed`
 */
async function changeAtOnce(
  ctx: OperationContext,
  change: BulkChange,
  query: QueryPlan,
  confirmed: number,
): Promise<boolean> {
  const { plural } = change.resource;
  const changeConfirmed = async (session: mongo.ClientSession) => {
    const nodes = await findConfirmed(ctx, change, query, { confirmed, session });
    return applyChange(ctx, change, nodes, session);
  };
  const removals = await ctx.store
    .bulkInTurn(`${plural} ${ctx.account}`, () =>
      withTransaction(ctx.store.db.collection(plural), max_attempts, changeConfirmed),
    )
    .catch((error: unknown) => {
      if (!isConflict(error) && !(error instanceof AlreadyClaimed)) throw error;
      return undefined;
    });
  if (removals === undefined) return false;
  await finishChange(ctx, change, removals);
  await verifyReferences(ctx, change);
  return true;
}

/** A change in pieces has claimed some of the objects. */
class AlreadyClaimed extends Error {}

async function findConfirmed(
  ctx: OperationContext,
  { resource: { plural } }: BulkChange,
  query: QueryPlan,
  { confirmed, session }: { confirmed: number; session: mongo.ClientSession },
): Promise<NodeRef[]> {
  const { filter, hint } = query;
  const options = { session, limit: confirmed + 1, maxTimeMS: read_limit_ms, ...(hint && { hint }) };
  const projection = { ...buildNodeProjection(plural), claim: 1 };
  const found = await ctx.store.db
    .collection(plural)
    .find(filter, { ...options, projection })
    .toArray();
  if (found.length !== confirmed) throw new AppError('conflict', { matched: await count(ctx, plural, query, session) });
  if (found.some(({ claim }) => claim !== undefined)) throw new AlreadyClaimed();
  return found.map((document) => describeNode(plural, document));
}
