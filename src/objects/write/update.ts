import type { Update } from '../../db/batching/update.js';
import type { Id } from '../../db/ids.js';
import { toDriverValues } from '../../db/opaque-json.js';
import { buildPlaceCondition } from '../../db/reach.js';
import { AppError, throwIfAny } from '../../errors.js';
import { isAboveDevices } from '../../resources/index.js';
import type { Resource, StoredChange } from '../../schema/resource.js';
import { buildSearchChange } from '../../schema/search.js';
import { getId, getIds } from '../../serialize/bson.js';
import { toPlainJson } from '../../serialize/plain-json.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import { assertChangeable, showResource } from '../resources.js';
import { hasDescendants, isBeingMoved, moveSubtree } from '../tree/moves.js';
import { findLinked, findNameFault, locateReferences } from '../tree/references.js';
import { withWriteHook } from '../type-hooks.js';
import { formatLastChange } from './last-change.js';
import { type ChangePlan, type ObjectBefore, planChange, type UpdateInput } from './plan.js';
import { verifyAfterwards } from './verify.js';

interface WantedUpdate extends UpdateInput {
  resource: Resource;
  id: string;
}

/**
 * Updates a resource in one conditional write (reference/resources.md#concurrency). @returns the changed document
 * @throws AppError forbidden (4031), notFound (4041), invalid (4003), conflict (4005), in this order
 */
export function updateResource(
  ctx: OperationContext,
  resource: Resource,
  id: string,
  input: UpdateInput,
): Promise<Bson> {
  const wanted = { resource, id, ...input };
  return withWriteHook(ctx, resource, input.values, () => applyUpdate(ctx, wanted), { id_developer: id });
}

const max_attempts = 20;

/**
 * Writes on condition of the version where the values do not depend on the stored object. Else, and to explain why that failed, it
 * loads, plans and writes if the object is unchanged, until that succeeds.
 */
async function applyUpdate(ctx: OperationContext, wanted: WantedUpdate): Promise<Bson> {
  const { resource, values, acceptedVersions } = wanted;
  assertChangeable(ctx, resource);
  if (!Object.keys(values).some((field) => resource.readModifyWrite.has(field))) {
    const precondition = acceptedVersions === undefined ? {} : { version: { $in: acceptedVersions } };
    const after = await writeChange(ctx, wanted, { ...resource.toStored(values, { now: ctx.now }), precondition });
    if (after !== undefined) return after;
  }
  for (let attempt = 0; attempt < max_attempts; attempt++) {
    const after = await applyOnce(ctx, wanted);
    if (after !== undefined) return after;
  }
  throw new AppError('database', {}, { cause: new Error('the object changes too often') });
}

/** @returns the changed document, undefined if another change came between */
async function applyOnce(ctx: OperationContext, wanted: WantedUpdate): Promise<Bson | undefined> {
  // changes of one object by this process take turns, so that only those of others are in their way
  const turn = `${wanted.resource.plural} ${ctx.account} ${wanted.id}`;
  const { before, plan, written } = await ctx.store.changeMutex(turn, async () => {
    const loaded = await load(ctx, wanted);
    const planned = planChange(ctx, wanted.resource, loaded, wanted);
    // what is below an object may take long to move: other changes of the object do not wait for it
    const isLater = planned.kind === 'move';
    return {
      before: loaded,
      plan: planned,
      written: isLater ? undefined : await carryOut(ctx, wanted, loaded, planned),
    };
  });
  const after = plan.kind === 'move' ? await carryOut(ctx, wanted, before, plan) : written;
  if (after === undefined) return undefined;
  const restore = (field: string) => restoreField(ctx, wanted, before, field);
  await verifyAfterwards(ctx, wanted.resource, { id: wanted.id, references: before.references, restore });
  return after;
}

/** An object with its internal id. */
interface LoadedObject extends ObjectBefore {
  _id: Id;
}

/** Loads the object, and what it and the new values refer to. @throws AppError notFound (4041) */
async function load(ctx: OperationContext, { resource, id, values }: WantedUpdate): Promise<LoadedObject> {
  const bson = await showResource(ctx, resource, id);
  const [_id, stored, ancestors] = [getId(bson, '_id'), toPlainJson(bson), getIds(bson, 'ancestors')];
  const mayMove = hasDescendants(resource) && resource.parents.some((field) => field in values);
  const [linked, references, isMoving] = await Promise.all([
    findLinked(ctx, resource, stored),
    locateReferences(ctx, resource, values),
    mayMove && isBeingMoved(ctx.store, _id),
  ]);
  return { _id, stored, ancestors, linked, references, isBeingMoved: isMoving };
}

/**
 * Does what was planned. @returns the changed document, undefined if the object has changed since it was loaded
 * @throws AppError invalid (4003) with a taken name among the faults, conflict (4005)
 */
async function carryOut(
  ctx: OperationContext,
  wanted: WantedUpdate,
  { _id }: LoadedObject,
  plan: ChangePlan,
): Promise<Bson | undefined> {
  const { resource, values, id } = wanted;
  if (plan.kind === 'refuse') {
    throwIfAny('invalid', Object.assign(plan.faults, await findNameFault(ctx, resource, values, id)));
    throw plan.conflict;
  }
  const write = () => writeChange(ctx, wanted, plan.change);
  return plan.kind === 'move' ? moveSubtree(ctx, resource, _id, write) : write();
}

async function restoreField(
  ctx: OperationContext,
  { resource, id }: WantedUpdate,
  { stored }: LoadedObject,
  field: string,
): Promise<void> {
  // a batched update is recognized by its request id (docs/decisions/0008-batched-commands.md)
  const undo = { ...ctx, request_id: `${ctx.request_id}/undo` };
  const values = { [field]: stored[field] ?? null };
  await applyUpdate(undo, { resource, id, values, acceptedVersions: undefined });
}

/** Builds the update that every change of an object consists of. @param id only needed if the name changes too */
export function buildUpdate(
  { user, now, request_id }: OperationContext,
  { fields }: Resource,
  { set, unset }: Pick<StoredChange, 'set' | 'unset'>,
  id = '',
): Pick<Update, 'update' | 'derived'> {
  const search = buildSearchChange(id, set, unset);
  const update = {
    // `last_change` always differs from the one before: each update shows its user in the database's log of changes
    $set: {
      ...toDriverValues(fields, set),
      ...search.set,
      updater: user,
      updated_at: now,
      last_change: formatLastChange({ user, request_id }),
    },
    $inc: { version: 1 },
    ...(unset.length > 0 && { $unset: Object.fromEntries(unset.map((path) => [path, 1])) }),
  };
  return { update, derived: search.derived };
}

/** Writes if `precondition` holds. @returns undefined if it does not */
async function writeChange(
  ctx: OperationContext,
  { resource, id }: WantedUpdate,
  { precondition = {}, ...change }: Omit<StoredChange, 'faults'>,
): Promise<Bson | undefined> {
  const { store, account, limit, request_id } = ctx;
  const { plural } = resource;
  const update = buildUpdate(ctx, resource, change, id);
  const condition = { ...precondition, ...buildPlaceCondition(limit, resource) };
  const changed = await store.updates(plural)({ account, id, condition, ...update, request_id });
  if (isAboveDevices(plural)) store.hierarchy.bump(account);
  return changed;
}
