import type { mongo } from 'mongoose';
import type { Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { collections, referencedBy } from '../db/indexes.js';
import { OpaqueJson } from '../db/opaque-json.js';
import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields/object.js';
import { toPlainJson } from '../serialize/plain-json.js';
import type { OperationContext, Store } from './context.js';

interface Node {
  _id: Id;
  id: string;
}

/**
 * Journal entry of a removal, written before anything is deleted: any instance can replay it, any number of times. It is
 * kept for `grace_ms` after the removal, and then replayed for children that an interrupted create left behind.
 */
interface Removal {
  _id: Id;
  /** The first entry of the removal. */
  root: Id;
  account: string;
  plural: string;
  nodes: readonly Node[];
  /** A node is deleted only if its parent is one of these; absent for the root. */
  above?: readonly Id[];
  user: string;
  request_id: string;
  /** Properties of a removed model, which its devices keep. */
  properties?: unknown;
  /** Epoch milliseconds. */
  at: number;
  done: boolean;
}

const batch = 1000;
const grace_ms = 60_000;

/** Collections of children by parent collection, with the field that names the parent. */
const childCollections = new Map<string, { plural: string; field: string }[]>();
for (const { plural, parentCollections } of collections) {
  for (const [field, upper] of Object.entries(parentCollections))
    childCollections.set(upper, [...(childCollections.get(upper) ?? []), { plural, field }]);
}

/**
 * Deletes a resource and everything below it (reference/resources.md#delete). `finishRemovals` completes an interrupted
 * removal. @throws AppError notFound (4041)
 */
export async function removeTree(
  { store, account, user, request_id }: OperationContext,
  { plural }: { plural: string },
  id: string,
): Promise<void> {
  const { db, removalsInProgress } = store;
  const found = await db.collection(plural).findOne({ account, id_developer: id }, { projection: { _id: 1 } });
  if (found === null) throw new AppError('notFound');
  const _id = db.newId();
  const nodes = [{ _id: found._id, id }];
  const removal: Removal = { _id, root: _id, account, plural, nodes, user, request_id, at: Date.now(), done: false };
  removalsInProgress.add(String(_id));
  try {
    await saveJournal(db, removal);
    const removed = await deleteNodes(db, removal);
    store.hierarchy.bump(account);
    await removals(db).updateMany({ root: _id }, { $set: { done: true, at: Date.now() } });
    if (removed === 0) throw new AppError('notFound');
  } catch (error) {
    if (!isNotFound(error)) db.markNotReady();
    throw error;
  } finally {
    removalsInProgress.delete(String(_id));
  }
}

function isNotFound(error: unknown): boolean {
  return error instanceof AppError && error.failure === 'notFound';
}

/** Ignores notFound (4041), for removals of objects that may not exist any more. */
export function ignoreNotFound(error: unknown): void {
  if (!isNotFound(error)) throw error;
}

/** Completes removals that a crash interrupted, of any instance. Runs periodically. */
export async function finishRemovals({ db, removalsInProgress }: Store, now_ms: number): Promise<void> {
  for await (const removal of removals(db).find({}, { sort: { _id: 1 } })) {
    const isOld = now_ms - removal.at > grace_ms;
    if ((removal.done && !isOld) || removalsInProgress.has(String(removal.root))) continue;
    await deleteNodes(db, removal);
    if (isOld) await removals(db).deleteOne({ _id: removal._id });
  }
}

/** Replays the removals of these objects for references created since. */
export async function replayRemovals({ db }: Store, ids: readonly Id[]): Promise<void> {
  for await (const removal of removals(db).find({ 'nodes._id': { $in: ids } })) await deleteNodes(db, removal);
}

function removals(db: Database): mongo.Collection<Removal> {
  return db.collection('removals') as unknown as mongo.Collection<Removal>;
}

async function saveJournal(db: Database, removal: Removal): Promise<void> {
  await removals(db).insertOne(removal as mongo.OptionalUnlessRequiredId<Removal>);
}

/** @returns the number of deleted nodes */
async function deleteNodes(db: Database, removal: Removal): Promise<number> {
  const { plural, nodes, above } = removal;
  const collection = db.collection(plural);
  const chosen = { _id: { $in: nodes.map(({ _id }) => _id) } };
  if (referencedBy.has(plural)) return removeLinked(db, removal);
  const { deletedCount } = await collection.deleteMany({ ...chosen, ...(above && { parent: { $in: above } }) });
  // a node that was moved to another parent since is kept, with its children
  const kept = above === undefined ? [] : await collection.find(chosen, { projection: { _id: 1 } }).toArray();
  const keptIds = new Set(kept.map(({ _id }) => String(_id)));
  const gone = nodes.filter(({ _id }) => !keptIds.has(String(_id)));
  if (gone.length > 0)
    for (const child of childCollections.get(plural) ?? []) await deleteChildren(db, removal, gone, child);
  return deletedCount;
}

async function deleteChildren(
  db: Database,
  { root, account, user, request_id }: Removal,
  gone: readonly Node[],
  { plural, field }: { plural: string; field: string },
): Promise<void> {
  const above = gone.map(({ _id }) => _id);
  const collection = db.collection(plural);
  const children = { account, [field]: { $in: gone.map(({ id }) => id) }, parent: { $in: above } };
  if (!childCollections.has(plural)) {
    await collection.deleteMany(children);
    return;
  }
  for (;;) {
    const found = await collection.find(children, { projection: { id_developer: 1 }, limit: batch }).toArray();
    if (found.length === 0) return;
    const nodes = found.map(({ _id, id_developer }) => ({ _id, id: String(id_developer) }));
    const journal = { account, plural, nodes, above, user, request_id, at: Date.now(), done: false };
    const removal: Removal = { _id: db.newId(), root, ...journal };
    await saveJournal(db, removal);
    await deleteNodes(db, removal);
  }
}

/** Deletes models; their devices keep the inherited properties (reference/devices.md#model-properties). */
async function removeLinked(db: Database, removal: Removal): Promise<number> {
  const collection = db.collection(removal.plural);
  let removed = 0;
  for (const node of removal.nodes) {
    const query = { _id: node._id };
    for (let last = removal; ; ) {
      const found = await collection.findOne(query, { raw: true });
      if (found === null) {
        // a new model with the same identifier keeps the devices
        const successor = await collection.findOne(
          { account: removal.account, id_developer: node.id },
          { projection: { _id: 1 } },
        );
        if (successor === null) await detachFromModel(db, last, node.id);
        break;
      }
      const { properties, version } = toPlainJson(found as unknown as Uint8Array);
      last = { ...removal, ...(isPlainObject(properties) && { properties: new OpaqueJson(properties) }) };
      await removals(db).updateOne({ _id: removal._id }, { $set: { properties: last.properties ?? null } });
      await detachFromModel(db, last, node.id);
      removed += (await collection.deleteOne({ ...query, version })).deletedCount;
    }
  }
  return removed;
}

async function detachFromModel(db: Database, { account, plural, properties }: Removal, id: string): Promise<void> {
  for (const { plural: linked, field } of referencedBy.get(plural) ?? []) {
    const merge = { properties: { $mergeObjects: [{ $literal: properties }, '$properties'] } };
    const change = [...(properties == null ? [] : [{ $set: merge }]), { $unset: field }];
    await db.collection(linked).updateMany({ account, [field]: id }, change);
  }
}
