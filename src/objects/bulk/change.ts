import type { mongo } from 'mongoose';
import { buildStatement } from '../../db/batching/update.js';
import type { StoredObject } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { protectedBy } from '../../db/indexes.js';
import { AppError, throwIfAny } from '../../errors.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { createTurns } from '../../lib/turns.js';
import { isAboveDevices } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import type { Resource } from '../../schema/resource.js';
import { toPlainJson } from '../../serialize/plain-json.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import type { ObjectSelection } from '../select/selection.js';
import { finishRemoval, type Removal, removeInTransaction } from '../tree/cascade-delete.js';
import { finishMove, hasDescendants, recordMove } from '../tree/moves.js';
import { assertUnprotected, findChangedReferences, findLinked, type References } from '../tree/references.js';
import { describeNode, type NodeRef, nodeProjection } from '../tree/removed-nodes.js';
import { planChange } from '../write/plan.js';
import { buildUpdate } from '../write/update.js';
import { followReferences } from '../write/verify.js';
import type { BulkAction } from './action.js';

export interface BulkChange {
  resource: Resource;
  /** The fields to change; undefined: the objects are deleted. */
  values: Values | undefined;
  /** Size of `values` as JSON. */
  bytes: number;
  /** The objects that `values` refer to. */
  references: References;
  /** The action on `values` for each object instead. */
  action?: BulkAction | undefined;
}

/** Objects whose stored documents are read and changed by one command. */
export const max_documents = 100;
/** Bytes that a change writes to all objects that match: it is read, stored and replicated once for each. */
const max_change_bytes = 64 * 1024 * 1024;

interface ApplyOptions {
  session: mongo.ClientSession;
  /** Objects for which the change is invalid are left alone. */
  skipsInvalid?: boolean;
}

/** The number of changed objects, and what is to be finished after the commit. */
interface Applied {
  changed: number;
  removals?: readonly Removal[];
  /** Journal entry of their move. */
  move?: Id;
  /** Objects for which an action was carried out. */
  actedOn?: readonly Id[];
}

/**
 * Changes or deletes the objects that match, in a transaction. `finishChange` follows its commit.
 * @throws AppError invalid (4003)
 */
export async function applyChange(
  ctx: OperationContext,
  change: BulkChange,
  { filter, hint }: Pick<ObjectSelection, 'filter' | 'hint'>,
  { session, skipsInvalid = false }: ApplyOptions,
): Promise<Applied> {
  const { resource, values, action } = change;
  const collection = ctx.store.db.collection<StoredObject>(resource.plural);
  const options = { session, ...(hint && { hint }) };
  const findMatches = (projection: object) => collection.find(filter, { ...options, projection }).toArray();
  if (action !== undefined) {
    const objects = (await findMatches(nodeProjection)).map(describeNode);
    const changed = await action.apply(ctx, values ?? {}, objects, { session, skipsInvalid });
    return { changed, actedOn: objects.map(({ _id }) => _id) };
  }
  if (values !== undefined && !hasStoredDependency(change)) {
    const update = withRequestId(ctx, buildUpdate(ctx, resource, resource.toStored(values, { now: ctx.now })));
    const { matchedCount } = await collection.updateMany(filter, update, options);
    return { changed: matchedCount };
  }
  if (values === undefined) {
    const matches = (await findMatches(nodeProjection)).map(describeNode);
    const nodes = await keepProtected(ctx, resource, matches, skipsInvalid);
    return { changed: nodes.length, removals: await removeInTransaction(ctx, resource, nodes, session) };
  }
  const matches = await findMatches({ _id: 1, bytes: { $bsonSize: '$$ROOT' } });
  let changed = 0;
  const ids = matches.map(({ _id }) => _id);
  const sizeOf = ({ bytes }: StoredObject) => Number(bytes) + change.bytes;
  for (const batch of splitIntoBatches(matches, max_documents, sizeOf)) {
    const batchIds = batch.map(({ _id }) => _id);
    const documents = await collection.find({ _id: { $in: batchIds } }, { raw: true, session }).toArray();
    const updates = await planUpdates(ctx, change, documents as unknown as Bson[], skipsInvalid);
    if (updates.length > 0) await collection.bulkWrite(updates, { session, ordered: false });
    changed += updates.length;
  }
  const isMove = resource.parents.some((field) => change.references.has(field)) && hasDescendants(resource);
  if (!isMove) return { changed };
  return { changed, move: await recordMove(ctx, resource, ids, session) };
}

/** Leaves out objects that others need, or refuses all. @throws AppError invalid (4003) unless `skipsInvalid` */
async function keepProtected(
  ctx: OperationContext,
  { plural }: Resource,
  nodes: readonly NodeRef[],
  skipsInvalid: boolean,
): Promise<readonly NodeRef[]> {
  if (!protectedBy.has(plural)) return nodes;
  if (!skipsInvalid) {
    const ids = nodes.map(({ id }) => id);
    await assertUnprotected(ctx, plural, ids);
    return nodes;
  }
  const isFree = ({ id }: NodeRef) =>
    assertUnprotected(ctx, plural, [id]).then(
      () => true,
      () => false,
    );
  const free: NodeRef[] = [];
  for (const node of nodes) if (await isFree(node)) free.push(node);
  return free;
}

/** Finishes removals, moves and actions, and forgets what is cached of changed objects. @param onGone as for `removeTree` */
export async function finishChange(
  ctx: OperationContext,
  { resource, action }: BulkChange,
  { removals = [], move, actedOn }: Applied,
  onGone?: () => void,
): Promise<void> {
  const { store, account } = ctx;
  if (isAboveDevices(resource.plural)) store.hierarchy.bump(account);
  await finishRemoval(store, removals, onGone);
  if (move !== undefined) await finishMove(store, move);
  if (actedOn !== undefined) await action?.finish(ctx, actedOn);
}

/**
 * Objects that were moved below a parent which is being removed are removed with it; a model that is being removed is
 * detached again; a parent that is being moved takes them along.
 */
export async function verifyReferences(ctx: OperationContext, { resource, references }: BulkChange): Promise<void> {
  await followReferences(ctx, references, await findChangedReferences(ctx, resource, references));
}

/** Objects that are changed in one transaction, all or none. More are changed in several. */
export const max_atomic = 1000;
/** Time in which a transaction is repeated after conflicts: within the time limit of a request. */
export const atomic_limit_ms = 3000;

/** @throws AppError conflict (4005) unless as many match as the client has confirmed (reference/bulk.md#confirmation) */
export function assertConfirmed(confirmed: number, matched: number): void {
  if (matched !== confirmed)
    throw new AppError('conflict', { matched }, { logged: { sent: confirmed, stored: matched } });
}

/** Reports whether what is stored decides what an update writes, or that it is refused. */
export function hasStoredDependency({ resource, values = {}, action }: BulkChange): boolean {
  return action === undefined && Object.keys(values).some((field) => resource.readModifyWrite.has(field));
}

/** @throws AppError invalid (4003) if the change writes more than 64 MiB to as many objects as match */
export function assertWritable({ bytes }: BulkChange, matched: number): void {
  const max_bytes = Math.floor(max_change_bytes / matched);
  if (bytes > max_bytes)
    throw new AppError('invalid', { body: `must be at most ${max_bytes} bytes for ${matched} objects` });
}

/** Computes the updates of documents in batches, which do not block. @throws AppError invalid (4003) */
export async function assertValid(
  ctx: OperationContext,
  change: BulkChange,
  documents: readonly Bson[],
): Promise<void> {
  const sizeOf = ({ length }: Bson) => length + change.bytes;
  const takeTurns = createTurns();
  for (const batch of splitIntoBatches(documents, max_documents, sizeOf)) {
    await planUpdates(ctx, change, batch);
    await takeTurns();
  }
}

/** Computes the update of each document, as a single request would. @throws AppError invalid (4003) unless `skipsInvalid` */
async function planUpdates(
  ctx: OperationContext,
  { resource, values = {}, references }: BulkChange,
  documents: readonly Bson[],
  skipsInvalid = false,
): Promise<mongo.AnyBulkWriteOperation<StoredObject>[]> {
  const updates = await Promise.all(
    documents.map(async (document) => {
      const stored = toPlainJson(document);
      const before = { stored, linked: await findLinked(ctx, resource, stored), references };
      const plan = planChange(ctx, resource, before, { values, acceptedVersions: undefined });
      if (plan.kind === 'refuse') {
        if (!skipsInvalid) throwIfAny('invalid', plan.faults);
        return undefined;
      }
      const filter = { account: ctx.account, id_developer: String(stored.id_developer) };
      return { updateOne: { filter, update: withRequestId(ctx, buildUpdate(ctx, resource, plan.change)) } };
    }),
  );
  return updates.filter((update) => update !== undefined);
}

function withRequestId({ request_id }: OperationContext, change: ReturnType<typeof buildUpdate>) {
  return buildStatement({ ...change, request_id }) as mongo.UpdateFilter<StoredObject>;
}
