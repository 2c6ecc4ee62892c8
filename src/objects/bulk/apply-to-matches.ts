import { isTimeout } from '../../db/driver-errors.js';
import { protectedBy } from '../../db/indexes.js';
import { withTransaction } from '../../db/transaction.js';
import { AppError } from '../../errors.js';
import type { Values } from '../../schema/fields.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { Resource } from '../../schema/resource.js';
import { getString } from '../../serialize/bson.js';
import { toPlainJson } from '../../serialize/plain-json.js';
import type { OperationContext } from '../context.js';
import { assertChangeable, keepPlace, showResource } from '../resources.js';
import { compile } from '../select/compile.js';
import { count, readBatches } from '../select/read.js';
import type { ObjectSelection } from '../select/selection.js';
import { assertUnprotected, findReferences } from '../tree/references.js';
import { withWriteHook } from '../type-hooks.js';
import type { BulkAction } from './action.js';
import {
  applyChange,
  assertConfirmed,
  assertValid,
  assertWritable,
  atomic_limit_ms,
  type BulkChange,
  finishChange,
  hasStoredDependency,
  max_atomic,
  verifyReferences,
} from './change.js';
import { applyInPieces } from './journaled-change.js';

/** A change of the objects that match. */
interface WantedChange {
  request: ListRequest;
  /** The fields to change, or the values of `action`; undefined deletes. */
  values: Values | undefined;
  action?: BulkAction;
  /** Called as by `removeTree`. */
  onGone?: (() => void) | undefined;
}

/**
 * Changes or deletes all objects that match, or carries out an action for each, if they are exactly as many as the parameter
 * `confirm` says (reference/bulk.md). @returns also the number of changed objects, without `confirm` none
 * @throws AppError invalid (4003), conflict (4005) with the number of matches; then nothing is changed
 */
export async function applyToMatches(
  ctx: OperationContext,
  resource: Resource,
  wanted: WantedChange,
): Promise<{ matched: number; changed?: number }> {
  const { action, onGone } = wanted;
  const { request, values } = action === undefined ? await protectNamed(ctx, resource, wanted) : wanted;
  const references = await findReferences(ctx, resource, (action === undefined && values) || {});
  const selection = await compile(ctx, resource, request);
  const bytes = values === undefined ? 0 : Buffer.byteLength(JSON.stringify(values));
  const change: BulkChange = { resource, values, bytes, references, action };
  if (values === undefined) await assertMatchesUnprotected(ctx, selection);
  const { confirm } = request.params;
  const run = async () => {
    if (typeof confirm !== 'number') return assertMatchesValid(ctx, change, selection);
    assertWritable(change, confirm);
    if (confirm <= max_atomic) return applyAtOnce(ctx, change, selection, confirm, onGone);
    return applyInPieces(ctx, change, selection, confirm);
  };
  try {
    const changed = await withWriteHook(ctx, resource, values ?? {}, run, selection.filter);
    if (changed !== undefined) return { matched: Number(confirm), changed };
    const matched = await count(ctx, selection);
    assertWritable(change, matched);
    return { matched };
  } catch (error) {
    if (typeof confirm === 'number' && !(error instanceof AppError) && !isTimeout(error)) ctx.store.db.markNotReady();
    throw error;
  }
}

/** @throws AppError invalid (4003) if others need an object that matches */
async function assertMatchesUnprotected(ctx: OperationContext, selection: ObjectSelection): Promise<void> {
  const { plural } = selection.listed;
  if (!protectedBy.has(plural)) return;
  const ids: string[] = [];
  for await (const batch of readBatches(ctx, selection, { projection: { id_developer: 1 } }))
    ids.push(...batch.map((bson) => getString(bson, 'id_developer') ?? ''));
  await assertUnprotected(ctx, plural, ids);
}

/** Checks an update against the first 1,000 objects that match, if they decide whether it is valid. @throws AppError invalid (4003) */
async function assertMatchesValid(
  ctx: OperationContext,
  change: BulkChange,
  selection: ObjectSelection,
): Promise<undefined> {
  if (!hasStoredDependency(change)) return;
  for await (const documents of readBatches(ctx, selection, { limit: max_atomic }))
    await assertValid(ctx, change, documents);
}

/**
 * Protects the object that the operation is limited to, which alone of its type can match, from being deleted or moved.
 * @throws AppError forbidden (4031) if it matches
 */
async function protectNamed(ctx: OperationContext, resource: Resource, wanted: WantedChange): Promise<WantedChange> {
  assertChangeable(ctx, resource);
  const { limit } = ctx;
  const { request, values } = wanted;
  const isMove = resource.parents.some((field) => typeof values?.[field] === 'string');
  if (limit?.plural !== resource.plural || (values !== undefined && !isMove)) return wanted;
  if ((await count(ctx, await compile(ctx, resource, request))) === 0)
    return { values, request: { ...request, filter: { ...request.filter, id_developer: { $in: [] } } } };
  if (values === undefined) throw new AppError('forbidden');
  const stored = toPlainJson(await showResource(ctx, resource, limit.id_developer));
  return { request, values: keepPlace(limit, resource, stored, values) };
}

/** Changes objects in one transaction. @throws AppError conflict (4005) if the objects that match are not `confirmed` */
async function applyAtOnce(
  ctx: OperationContext,
  change: BulkChange,
  selection: ObjectSelection,
  confirmed: number,
  onGone?: () => void,
): Promise<number> {
  const { db, changeMutex } = ctx.store;
  const { plural } = change.resource;
  const applied = await changeMutex(`${plural} ${ctx.account}`, async () => {
    // counted before, so that nothing is written in vain
    const matched = await count(ctx, selection);
    if (matched !== confirmed) await assertMatchesValid(ctx, change, selection);
    assertConfirmed(confirmed, matched);
    return withTransaction(db.collection(plural), atomic_limit_ms, async (session) => {
      const outcome = await applyChange(ctx, change, selection, { session });
      assertConfirmed(confirmed, outcome.actedOn?.length ?? outcome.changed);
      return outcome;
    });
  });
  await finishChange(ctx, change, applied, onGone);
  await verifyReferences(ctx, change);
  return applied.changed;
}
