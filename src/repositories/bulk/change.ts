import type { mongo } from 'mongoose';
import { buildStatement } from '../../db/batching/update.js';
import type { Collection, StoredDocument } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { throwIfAny } from '../../errors.js';
import { isAboveDevices } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import type { Resource } from '../../schema/resource.js';
import { toPlainJson } from '../../serialize/plain-json.js';
import { finishRemoval, type Removal, removeInTransaction, replayRemovals } from '../cascade-delete.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import { findLinked, findMissingReferences, type References } from '../references.js';
import type { NodeRef } from '../removed-nodes.js';
import { buildUpdate, findFormerParents } from '../resources.js';

/** A change of many objects. */
export interface BulkChange {
  resource: Resource;
  /** The fields to change; undefined: the objects are deleted. */
  values: Values | undefined;
  /** Internal ids of the objects that `values` refer to. */
  references: References;
}

/** Objects whose stored documents are read and changed together. */
const max_documents = 100;

/** Applies a change in a transaction, which also releases the objects. @returns the removals to finish after the commit @throws AppError invalid (4003) */
export async function applyChange(
  ctx: OperationContext,
  change: BulkChange,
  nodes: readonly NodeRef[],
  session: mongo.ClientSession,
): Promise<readonly Removal[]> {
  const { resource, values } = change;
  if (values === undefined) return removeInTransaction(ctx, resource, nodes, session);
  const collection = ctx.store.db.collection(resource.plural);
  if (!hasStoredDependency(resource, values)) {
    const { set, unset } = resource.toStored(values, { now: ctx.now });
    const update = withRequestId(ctx, buildUpdate(ctx, resource, { set, unset: [...unset, 'claim'] }));
    await collection.updateMany(byId(nodes), update, { session });
    return [];
  }
  for (let from = 0; from < nodes.length; from += max_documents) {
    const documents = await readDocuments(collection, nodes.slice(from, from + max_documents), session);
    await collection.bulkWrite(await planUpdates(ctx, change, documents), { session, ordered: false });
  }
  return [];
}

/** Finishes removals, and forgets what is cached of changed objects. */
export async function finishChange(
  { store, account }: OperationContext,
  { resource }: BulkChange,
  removals: readonly Removal[],
): Promise<void> {
  if (isAboveDevices(resource.plural)) store.hierarchy.bump(account);
  await finishRemoval(store, removals);
}

/**
 * Objects that were moved below a parent which is being removed are removed with it; a model that is being removed is
 * detached again.
 */
export async function verifyReferences(ctx: OperationContext, { resource, references }: BulkChange): Promise<void> {
  const missing = await findMissingReferences(ctx, resource, references);
  if (Object.keys(missing).length === 0) return;
  await replayRemovals(ctx.store, [...references.values()]);
}

/** Reports whether what is stored decides what is written, or that it is refused. */
export function hasStoredDependency({ readModifyWrite }: Resource, values: Values): boolean {
  return Object.keys(values).some((field) => readModifyWrite.has(field));
}

function byId(nodes: readonly NodeRef[]): { _id: { $in: Id[] } } {
  return { _id: { $in: nodes.map(({ _id }) => _id) } };
}

async function readDocuments(collection: Collection, nodes: readonly NodeRef[], session: mongo.ClientSession) {
  const found = await collection.find(byId(nodes), { raw: true, session }).toArray();
  return found as unknown as Bson[];
}

/** Computes the update of each document, as a single request would. @throws AppError invalid (4003) */
export async function planUpdates(
  ctx: OperationContext,
  { resource, values = {}, references }: BulkChange,
  documents: readonly Bson[],
): Promise<mongo.AnyBulkWriteOperation<StoredDocument>[]> {
  const field = resource.parents.find((parent) => references.has(parent));
  const parent = field === undefined ? undefined : references.get(field);
  return Promise.all(
    documents.map(async (document) => {
      const stored = toPlainJson(document);
      const linked = await findLinked(ctx, resource, stored);
      const { set, unset, faults } = resource.toStored(values, { now: ctx.now, stored, linked });
      const formerParents = findFormerParents(resource, values, stored, faults);
      throwIfAny('invalid', faults);
      const change = {
        set: parent === undefined ? set : { ...set, parent },
        unset: [...unset, ...formerParents, 'claim'],
      };
      const filter = { account: ctx.account, id_developer: String(stored.id_developer) };
      return { updateOne: { filter, update: withRequestId(ctx, buildUpdate(ctx, resource, change)) } };
    }),
  );
}

function withRequestId({ request_id }: OperationContext, change: ReturnType<typeof buildUpdate>) {
  return buildStatement({ ...change, request_id }) as mongo.UpdateFilter<StoredDocument>;
}
