import type { StoredDocument } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { toDriverValues } from '../db/opaque-json.js';
import { AppError, type FieldErrors, throwIfAny } from '../errors.js';
import { isAboveDevices } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { Resource, StoredChange } from '../schema/resource.js';
import type { UpdateRequest } from '../schema/validation.js';
import { getString } from '../serialize/bson.js';
import { toPlainJson } from '../serialize/plain-json.js';
import { ignoreNotFound, removeTree, replayRemovals } from './cascade-delete.js';
import type { OperationContext } from './context.js';
import { insertWithIdentifier } from './identifiers.js';
import type { Bson } from './page.js';
import {
  findLinked,
  findMissingReferences,
  findNameFault,
  findReferences,
  parentIdOf,
  throwWithNameTaken,
} from './references.js';

/**
 * Creates a resource (reference/resources.md#create): insert, verify the references, compensate. If the parent is
 * deleted at the same time, so is the new object. @returns its id_developer @throws AppError invalid (4003)
 */
export async function createResource(ctx: OperationContext, resource: Resource, values: Values): Promise<string> {
  const { store, account, user, now, request_id } = ctx;
  const references = await findReferences(ctx, resource, values);
  const { set } = resource.toStored(values, { now, creating: true });
  const parent = parentIdOf(resource, references);
  const document: StoredDocument = {
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
    ...(parent && { parent }),
  };
  const id = await insertWithIdentifier(ctx, resource, document);
  const missing = await findMissingReferences(ctx, resource, references);
  if (Object.keys(missing).length > 0) {
    // the removal of the parent may have deleted the object already
    await removeTree(ctx, resource, id).catch(ignoreNotFound);
    throw new AppError('invalid', missing);
  }
  return id;
}

/** Loads one object. @param within `{field: identifier}` of the parent it must have @throws AppError notFound (4041) */
export async function showResource(
  { store, account }: OperationContext,
  { plural }: { plural: string },
  id: string,
  within: Readonly<Record<string, string>> = {},
): Promise<Bson> {
  const document = await store.loader(plural).find(account, id);
  if (document === undefined) throw new AppError('notFound');
  for (const [field, parent] of Object.entries(within)) {
    if (getString(document, field) !== parent) throw new AppError('notFound');
  }
  return document;
}

/** @returns the internal id @throws AppError notFound (4041) */
export async function assertExists(
  { store, account }: OperationContext,
  { plural }: Resource,
  id: string,
): Promise<Id> {
  const found = await store.loader(plural).idOf(account, id);
  if (found === undefined) throw new AppError('notFound');
  return found;
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
export async function updateResource(
  ctx: OperationContext,
  resource: Resource,
  id: string,
  input: UpdateInput,
): Promise<Bson> {
  const { values, acceptedVersions } = input;
  if (Object.keys(values).some((field) => resource.readModifyWrite.has(field))) {
    return readModifyWrite(ctx, resource, id, input);
  }
  const versions = acceptedVersions === undefined ? {} : { version: { $in: acceptedVersions } };
  const change = resource.toStored(values, { now: ctx.now });
  const changed = await writeChange(ctx, resource, id, { ...change, precondition: versions });
  if (changed !== undefined) return changed;
  const stored = await readPlain(ctx, resource, id);
  throwIfAny('invalid', await findNameFault(ctx, resource, values, id));
  throw conflict(resource, acceptedVersions, Number(stored.version));
}

const max_attempts = 20;

/** Optimistic locking: reads, computes, and writes if the object is unchanged, until that succeeds. */
async function readModifyWrite(
  ctx: OperationContext,
  resource: Resource,
  id: string,
  input: UpdateInput,
): Promise<Bson> {
  const { values, acceptedVersions } = input;
  let version = 0;
  for (let attempt = 0; attempt < max_attempts; attempt++) {
    const stored = await readPlain(ctx, resource, id);
    version = Number(stored.version);
    const references = await findReferences(ctx, resource, values, id);
    const linked = await findLinked(ctx, resource, stored);
    const { set, unset, faults, precondition } = resource.toStored(values, { now: ctx.now, stored, linked });
    const otherParents = unsetParents(resource, values, stored, faults);
    await throwWithNameTaken(ctx, resource, faults, values, id);
    if (acceptedVersions !== undefined && !acceptedVersions.includes(version)) break;
    const parent = parentIdOf(resource, references);
    const changed = await writeChange(ctx, resource, id, {
      set: parent === undefined ? set : { ...set, parent },
      unset: [...unset, ...otherParents],
      precondition: { version, ...precondition },
    });
    if (changed === undefined) continue;
    const missing = await findMissingReferences(ctx, resource, references);
    if (Object.keys(missing).length === 0) return changed;
    if (!resource.parents.some((field) => field in missing)) {
      // a referenced model was deleted in between: replay its removal here
      await replayRemovals(ctx.store, [...references.values()]);
      return showResource(ctx, resource, id);
    }
    // the new parent is being removed, and the object with it
    await removeTree(ctx, resource, id);
    throw new AppError('notFound');
  }
  throwIfAny('invalid', await findNameFault(ctx, resource, values, id));
  throw conflict(resource, acceptedVersions, version);
}

/** Writes if `precondition` holds. @returns undefined if it does not */
async function writeChange(
  { store, account, user, now, request_id }: OperationContext,
  { plural, fields }: Resource,
  id: string,
  { set, unset, precondition = {} }: Omit<StoredChange, 'faults'>,
): Promise<Bson | undefined> {
  const update = {
    $set: { ...toDriverValues(fields, set), updater: user, updated_at: now },
    $inc: { version: 1 },
    ...(unset.length > 0 && { $unset: Object.fromEntries(unset.map((path) => [path, 1])) }),
  };
  const changed = await store.updates(plural)({ account, id, condition: precondition, update, request_id });
  if (isAboveDevices(plural)) store.hierarchy.bump(account);
  return changed;
}

/** @throws AppError notFound (4041) */
async function readPlain(ctx: OperationContext, resource: Resource, id: string): Promise<Values> {
  return toPlainJson(await showResource(ctx, resource, id));
}

/** @returns the fields of the former parents, to unset on a move. Adds a fault if the only parent would be unset */
function unsetParents({ parents }: Resource, values: Values, stored: Values, faults: FieldErrors): string[] {
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
function conflict({ conflict }: Resource, sent: readonly number[] | undefined, stored: number): AppError {
  const version = conflict === 'number' ? stored : `the stored version is ${stored}`;
  return new AppError('conflict', { version }, { logged: { sent, stored } });
}
