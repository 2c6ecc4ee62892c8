import type { StoredNode } from '../db/batching/loader.js';
import type { Update } from '../db/batching/update.js';
import type { StoredObject } from '../db/database.js';
import { toDriverValues } from '../db/opaque-json.js';
import { buildPlaceCondition, isNamed } from '../db/reach.js';
import { AppError, type FieldErrors, throwIfAny } from '../errors.js';
import { isAboveDevices } from '../resources/index.js';
import type { UpdateRequest } from '../schema/body.js';
import type { Values } from '../schema/fields.js';
import type { Resource, StoredChange } from '../schema/resource.js';
import { getId, getIds, getString } from '../serialize/bson.js';
import { toPlainJson } from '../serialize/plain-json.js';
import { isSameChain } from './ancestors.js';
import { ignoreNotFound, isBeingRemoved, removeTree, replayRemovals } from './cascade-delete.js';
import type { OperationContext } from './context.js';
import { insertAs, insertWithIdentifier } from './identifiers.js';
import { formatLastChange } from './last-change.js';
import { assertChangeable, assertCreatable, checkPlace } from './limits.js';
import { alignBelow, hasDescendants, isBeingMoved, moveSubtree } from './moves.js';
import type { Bson } from './page.js';
import {
  findChangedReferences,
  findLinked,
  findNameFault,
  findReferences,
  placeBelow,
  type References,
} from './references.js';
import { buildSearchChange } from './search-text.js';
import { withClaims } from './write-hooks.js';

/**
 * Creates a resource (reference/resources.md#create): insert, verify the references, compensate. If the parent was
 * deleted at the same time, the new object is deleted with it, and the create has succeeded before. @param identifier default: made from the name
 * @returns its id_developer @throws AppError invalid (4003)
 */
export async function createResource(
  ctx: OperationContext,
  resource: Resource,
  values: Values,
  identifier?: string,
): Promise<string> {
  assertCreatable(ctx, resource);
  const { store, account, user, now, request_id } = ctx;
  const references = await findReferences(ctx, resource, values);
  const { set } = resource.toStored(values, { now, creating: true });
  const document: StoredObject = {
    _id: store.db.newId(),
    account,
    id_developer: '',
    ...toDriverValues(resource.fields, set),
    owner: user,
    updater: user,
    created_at: now,
    updated_at: now,
    version: 0,
    last_request_id: request_id,
    ...placeBelow(resource, references),
  };
  const id = await withClaims(ctx, resource, values, () =>
    identifier === undefined
      ? insertWithIdentifier(ctx, resource, document)
      : insertAs(ctx, resource, document, identifier),
  );
  await settleReferences(ctx, resource, id, references);
  return id;
}

/**
 * Deletes an object whose parent was deleted since the references were found, detaches it from a deleted model, and aligns it with
 * a parent that was moved. @param stored the object before an update
 */
async function settleReferences(
  ctx: OperationContext,
  resource: Resource,
  id: string,
  references: References,
  stored?: Values,
): Promise<void> {
  const { store } = ctx;
  // before the objects are read again: one that is removed in between is missing then
  const removing = await findBeingRemoved(ctx, resource, references);
  const { missing, movedParent } = await findChangedReferences(ctx, resource, references);
  await settleProtected(ctx, resource, id, { gone: [...removing, ...missing], stored });
  // the removal of the parent may have deleted the object already
  if ([...resource.parents, ...resource.owners].some((field) => missing.includes(field)))
    await removeTree(ctx, resource, id).catch(ignoreNotFound);
  else if (missing.length > 0) await replayRemovals(store, [...references.values()]);
  if (movedParent !== undefined) await alignBelow(store, movedParent.plural, movedParent._id);
}

function isProtecting({ fields }: Resource, field: string): boolean {
  return fields[field]?.references?.protects === true;
}

/** @returns fields whose object others protect and whose removal is under way */
async function findBeingRemoved({ store }: OperationContext, resource: Resource, references: References) {
  const removing: string[] = [];
  for (const [field, { _id }] of references)
    if (isProtecting(resource, field) && (await isBeingRemoved(store, _id))) removing.push(field);
  return removing;
}

/**
 * Takes back a write that came too late to protect what it names: deletes a new object, gives a stored one its former values.
 * @param gone fields whose object is deleted @throws AppError invalid (4003)
 */
async function settleProtected(
  ctx: OperationContext,
  resource: Resource,
  id: string,
  { gone, stored }: { gone: readonly string[]; stored: Values | undefined },
): Promise<void> {
  const field = gone.find((name) => isProtecting(resource, name));
  if (field === undefined) return;
  if (stored === undefined) await removeTree(ctx, resource, id).catch(ignoreNotFound);
  else {
    // a batched update is recognized by its request id (docs/decisions/0008-batched-commands.md)
    const undo = { ...ctx, request_id: `${ctx.request_id}/undo` };
    const values = { [field]: stored[field] ?? null };
    await applyUpdate(undo, resource, id, { values, acceptedVersions: undefined });
  }
  throw new AppError('invalid', { [field]: 'does not exist' });
}

/** Loads one object. @param within `{field: identifier}` of the parent it must have @throws AppError notFound (4041) */
export async function showResource(
  ctx: OperationContext,
  { plural }: { plural: string },
  id: string,
  within: Readonly<Record<string, string>> = {},
): Promise<Bson> {
  const document = await ctx.store.loader(plural).find(ctx, id);
  if (document === undefined) throw new AppError('notFound');
  // the parent of the object that the operation is limited to is out of reach
  const isBelowLimit = ctx.limit === undefined || !isNamed(ctx.limit, getId(document, '_id'));
  if (Object.keys(within).length > 0 && !isBelowLimit) throw new AppError('notFound');
  for (const [field, parent] of Object.entries(within)) {
    if (getString(document, field) !== parent) throw new AppError('notFound');
  }
  return document;
}

/** @returns the place of the object @throws AppError notFound (4041) */
export async function assertExists(
  ctx: OperationContext,
  { plural }: { plural: string },
  id: string,
): Promise<StoredNode> {
  const node = await ctx.store.loader(plural).locate(ctx, id);
  if (node === undefined) throw new AppError('notFound');
  return node;
}

/** Checks what a query by identifier alone would not: an object out of reach. @throws AppError notFound (4041) */
export async function assertWithinReach(
  ctx: OperationContext,
  resource: { plural: string },
  id: string,
): Promise<void> {
  if (ctx.limit !== undefined) await assertExists(ctx, resource, id);
}

/** A validated update. */
export interface UpdateInput extends Pick<UpdateRequest, 'values'> {
  /** Versions that may be changed; undefined: any. */
  acceptedVersions: readonly number[] | undefined;
}

/**
 * Updates a resource in one conditional write (reference/resources.md#concurrency). @returns the changed document
 * @throws AppError notFound (4041), invalid (4003), conflict (4005), in this order
 */
export function updateResource(
  ctx: OperationContext,
  resource: Resource,
  id: string,
  input: UpdateInput,
): Promise<Bson> {
  const write = () => applyUpdate(ctx, resource, id, input);
  return withClaims(ctx, resource, input.values, write, { id_developer: id });
}

const max_attempts = 20;

/**
 * Writes on condition of the version where the values do not depend on the stored object. Else, and to explain why that failed,
 * it reads, computes, and writes if the object is unchanged, until that succeeds. Changes of one object by this process take
 * turns, so that only those of others are in their way.
 */
async function applyUpdate(ctx: OperationContext, resource: Resource, id: string, input: UpdateInput): Promise<Bson> {
  assertChangeable(ctx, resource);
  const { values, acceptedVersions } = input;
  if (!Object.keys(values).some((field) => resource.readModifyWrite.has(field))) {
    const precondition = acceptedVersions === undefined ? {} : { version: { $in: acceptedVersions } };
    const change = { ...resource.toStored(values, { now: ctx.now }), precondition };
    const changed = await writeChange(ctx, resource, id, change);
    if (changed !== undefined) return changed;
  }
  const turn = `${resource.plural} ${ctx.account} ${id}`;
  for (let attempt = 0; attempt < max_attempts; attempt++) {
    const tried = await ctx.store.changeMutex(turn, () => tryChange(ctx, resource, id, input));
    // what is below an object may take long to move: other changes of the object do not wait for it
    const changed = tried.move === undefined ? tried.changed : await tried.move();
    if (changed === undefined) continue;
    await settleReferences(ctx, resource, id, tried.references, tried.stored);
    return changed;
  }
  throw new AppError('database', {}, { cause: new Error('the object changes too often') });
}

/** The object as it was read, with `changed` unless it has changed since, or with the move of all that is below it. */
interface TriedChange {
  stored: Values;
  references: References;
  changed?: Bson | undefined;
  move?: () => Promise<Bson | undefined>;
}

/** @throws AppError notFound (4041), invalid (4003), conflict (4005), in this order */
async function tryChange(
  ctx: OperationContext,
  resource: Resource,
  id: string,
  { values: wanted, acceptedVersions }: UpdateInput,
): Promise<TriedChange> {
  const bson = await showResource(ctx, resource, id);
  const stored = toPlainJson(bson);
  const version = Number(stored.version);
  const values = checkPlace(ctx, resource, stored, wanted);
  const linked = await findLinked(ctx, resource, stored);
  const { set, unset, faults, precondition } = resource.toStored(values, { now: ctx.now, stored, linked });
  const otherParents = findFormerParents(resource, values, stored, faults);
  const references = await findReferences(ctx, resource, values, { id, faults });
  if (acceptedVersions !== undefined && !acceptedVersions.includes(version)) {
    throwIfAny('invalid', await findNameFault(ctx, resource, values, id));
    throw createConflict(resource, acceptedVersions, version);
  }
  const place = placeBelow(resource, references);
  const change = {
    set: { ...set, ...place },
    unset: [...unset, ...otherParents],
    precondition: { version, ...precondition },
  };
  const write = () => writeChange(ctx, resource, id, change);
  const _id = getId(bson, '_id');
  const isMove =
    hasDescendants(resource) &&
    place.ancestors !== undefined &&
    (!isSameChain(getIds(bson, 'ancestors'), place.ancestors) || (await isBeingMoved(ctx.store, _id)));
  if (isMove) return { stored, references, move: () => moveSubtree(ctx, resource, _id, write) };
  return { stored, references, changed: await write() };
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
  resource: Resource,
  id: string,
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

/** @returns the fields of the former parents, to unset on a move. Adds a fault if the only parent would be unset */
export function findFormerParents(
  { parents }: Resource,
  values: Values,
  stored: Values,
  faults: FieldErrors,
): string[] {
  if (parents.length < 2) return [];
  const newParent = parents.find((field) => typeof values[field] === 'string');
  if (newParent !== undefined) return parents.filter((field) => field !== newParent);
  for (const field of parents) {
    if (values[field] === null && stored[field] !== undefined)
      faults[field] = `exactly one of ${parents.join(' and ')} must be given`;
  }
  return [];
}

/** Creates error 4005 with the stored version as a number, or as a message (reference/resources.md#concurrency). */
export function createConflict({ legacy }: Resource, sent: readonly number[] | undefined, stored: number): AppError {
  const version = legacy.hasConflictMessage ? `the stored version is ${stored}` : stored;
  return new AppError('conflict', { version }, { logged: { sent, stored } });
}
