import type { mongo } from 'mongoose';
import { type Collection, type Database, read_limit_ms } from '../db/database.js';
import { isTimeout, retryOnce } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { collections, referencedBy } from '../db/indexes.js';
import { OpaqueJson } from '../db/opaque-json.js';
import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields/object.js';
import { toPlainJson } from '../serialize/plain-json.js';
import { canRetry, settleClaims, unclaimed } from './claims.js';
import type { OperationContext, Store } from './context.js';
import { type JournalRoot, saveRoot, sortWork, takeOver, withHeartbeat } from './journal.js';
import {
  buildLeafProjection,
  buildNodeProjection,
  describeNode,
  type NodeRef,
  type RecordedRemoval,
  writeLeafTombstones,
  writeNodeTombstones,
} from './removed-nodes.js';
import { withdrawTombstones } from './tombstones.js';

/**
 * Journal entry of a removal, written before anything is deleted: any instance can replay it, any number of times. It is
 * kept for `grace_ms` after the removal, and then replayed for children that an interrupted create left behind.
 */
export interface Removal extends JournalRoot, RecordedRemoval {
  /** Properties of a removed model, which its devices keep. */
  properties?: unknown;
  /** Epoch milliseconds. */
  at: number;
  done: boolean;
}

/** Nodes that one journal entry holds. */
const max_nodes = 1000;
/** Documents that one command deletes: well below the socket timeout, so that slow disks delay and do not fail. */
const max_deleted = 5000;
const grace_ms = 60_000;

/** Collections of children by parent collection, with the field that names the parent. */
const childCollections = new Map<string, { plural: string; field: string }[]>();
for (const { plural, parentCollections } of collections) {
  for (const [field, parent] of Object.entries(parentCollections))
    childCollections.set(parent, [...(childCollections.get(parent) ?? []), { plural, field }]);
}

/**
 * Deletes a resource and everything below it (reference/resources.md#delete). A removal that outlasts its request continues;
 * `finishRemovals` completes an interrupted one. @throws AppError notFound (4041)
 */
export async function removeTree(
  { store, account, user, request_id }: OperationContext,
  { plural }: { plural: string },
  id: string,
): Promise<void> {
  const { db, removalsInProgress, abandonedRemovals } = store;
  const projection = buildNodeProjection(plural);
  const found = await db.collection(plural).findOne({ account, id_developer: id }, { projection });
  if (found === null) throw new AppError('notFound');
  const _id = db.newId();
  const nodes = [describeNode(plural, found)];
  const removal: Removal = { _id, root: _id, account, plural, nodes, user, request_id, at: Date.now(), done: false };
  removalsInProgress.add(String(_id));
  try {
    await saveRoot(db.collection(journalName), removal);
    const removed = await withHeartbeat(db.collection(journalName), _id, () => deleteNodes(store, removal));
    store.hierarchy.bump(account);
    await removals(db).updateMany({ root: _id }, { $set: { done: true, at: Date.now() } });
    if (removed === 0) throw await nothingRemoved(db, removal);
  } catch (error) {
    if (!isNotFound(error) && !isTimeout(error)) {
      abandonedRemovals.add(String(_id));
      db.markNotReady();
    }
    throw error;
  } finally {
    removalsInProgress.delete(String(_id));
  }
}

/**
 * Deletes objects and writes the journal entries of their removal in one transaction. After its commit, `finishRemoval`
 * deletes what is below them; any instance does if this one crashes.
 */
export async function removeInTransaction(
  { store: { db }, account, user, request_id }: OperationContext,
  { plural }: { plural: string },
  nodes: readonly NodeRef[],
  session: mongo.ClientSession,
): Promise<readonly Removal[]> {
  const root = db.newId();
  const isLinked = referencedBy.has(plural);
  const entries: Removal[] = [];
  for (let from = 0; from < nodes.length; from += isLinked ? 1 : max_nodes) {
    const _id = entries.length === 0 ? root : db.newId();
    const piece = nodes.slice(from, from + (isLinked ? 1 : max_nodes));
    const properties = isLinked ? await readProperties(db.collection(plural), piece, session) : {};
    // the nodes are gone with the commit, so that none of them is to be deleted later
    const fixed = { root, account, plural, nodes: piece, above: [], user, request_id };
    entries.push({ _id, ...fixed, ...properties, at: Date.now(), done: false });
  }
  const [first, ...others] = entries;
  if (first === undefined) return entries;
  await saveRoot(db.collection(journalName), first, session);
  if (others.length > 0)
    await removals(db).insertMany(others as mongo.OptionalUnlessRequiredId<Removal>[], { session });
  await writeNodeTombstones(db, { root, account, plural, nodes, user, request_id }, session);
  await db.collection(plural).deleteMany({ _id: { $in: nodes.map(({ _id }) => _id) } }, { session });
  return entries;
}

/** Reads the properties of a model that its devices keep. */
async function readProperties(
  collection: Collection,
  [model]: readonly NodeRef[],
  session: mongo.ClientSession,
): Promise<Pick<Removal, 'properties'>> {
  const found = model && (await collection.findOne({ _id: model._id }, { raw: true, session }));
  const properties = found && toPlainJson(found as unknown as Uint8Array).properties;
  return isPlainObject(properties) ? { properties: new OpaqueJson(properties) } : {};
}

/** Deletes what is below objects that `removeInTransaction` has deleted. */
export async function finishRemoval(store: Store, entries: readonly Removal[]): Promise<void> {
  const { db, removalsInProgress, abandonedRemovals, hierarchy } = store;
  const [first] = entries;
  if (first === undefined) return;
  const { root, account } = first;
  removalsInProgress.add(String(root));
  try {
    await withHeartbeat(db.collection(journalName), root, async () => {
      for (const entry of entries) await deleteNodes(store, entry);
    });
    hierarchy.bump(account);
    await removals(db).updateMany({ root }, { $set: { done: true, at: Date.now() } });
  } catch (error) {
    if (!isTimeout(error)) abandonedRemovals.add(String(root));
    throw error;
  } finally {
    removalsInProgress.delete(String(root));
  }
}

/** The object was deleted by another request, or by an instance that has taken this removal over. */
async function nothingRemoved(db: Database, { _id, nodes }: Removal): Promise<AppError> {
  const entry = await removals(db).findOne({ _id }, { projection: { replayed: 1 } });
  if (entry?.replayed) return new AppError('database');
  await withdrawTombstones(
    db,
    _id,
    nodes.map((node) => node._id),
  );
  return new AppError('notFound');
}

function isNotFound(error: unknown): boolean {
  return error instanceof AppError && error.failure === 'notFound';
}

/** Ignores notFound (4041), for removals of objects that may not exist any more. */
export function ignoreNotFound(error: unknown): void {
  if (!isNotFound(error)) throw error;
}

/** Completes removals whose instance shows no sign of life any more. Runs before the service is ready, then periodically. */
export async function finishRemovals(store: Store): Promise<void> {
  const { db, removalsInProgress, abandonedRemovals } = store;
  const journal = removals(db);
  const abandoned = new Set(abandonedRemovals);
  const unfinished = await journal.distinct('root', { done: false });
  for (const root of sortWork(unfinished, removalsInProgress, abandoned)) {
    if (!(await takeOver(db.collection(journalName), root, abandoned.has(String(root))))) continue;
    await db.endIdleTransactions();
    await withHeartbeat(db.collection(journalName), root, async () => {
      // what one entry deletes no longer leads to what is below it: each entry is replayed
      for await (const removal of journal.find({ root, done: false }, { sort: { _id: 1 } }))
        await deleteNodes(store, removal);
    });
    await journal.updateMany({ root }, { $set: { done: true, at: Date.now() } });
  }
  for (const root of abandoned) abandonedRemovals.delete(root);
}

/** Replays completed removals once after `grace_ms`, as long as it `goesOn`. @param now_ms epoch milliseconds */
export async function replayCompleted(
  store: Store,
  now_ms: number,
  goesOn: () => Promise<boolean> = async () => true,
): Promise<void> {
  const journal = removals(store.db);
  for await (const removal of journal.find({ done: true, at: { $lt: now_ms - grace_ms } }, { sort: { _id: 1 } })) {
    if (!(await goesOn())) return;
    await deleteNodes(store, removal);
    await journal.deleteOne({ _id: removal._id });
  }
}

/** Replays the removals of these objects for references created since. */
export async function replayRemovals(store: Store, ids: readonly Id[]): Promise<void> {
  const found = removals(store.db).find({ 'nodes._id': { $in: ids } });
  for await (const removal of found) await deleteNodes(store, removal);
}

const journalName = 'removals';

function removals(db: Database): mongo.Collection<Removal> {
  return db.collection(journalName) as unknown as mongo.Collection<Removal>;
}

/** @returns the number of deleted nodes */
async function deleteNodes(store: Store, removal: Removal): Promise<number> {
  const { db } = store;
  const { plural, nodes, above } = removal;
  const collection = db.collection(plural);
  if (referencedBy.has(plural)) return removeLinked(store, removal);
  const chosen = { _id: { $in: nodes.map(({ _id }) => _id) } };
  await writeNodeTombstones(db, removal);
  const deletedCount = await deleteUnclaimed(store, removal);
  // a node that was moved to another parent since is kept, with its children
  const kept = above === undefined ? [] : await collection.find(chosen, { projection: { _id: 1 } }).toArray();
  await withdrawTombstones(
    db,
    removal.root,
    kept.map(({ _id }) => _id),
  );
  const keptIds = new Set(kept.map(({ _id }) => String(_id)));
  const deleted = nodes.filter(({ _id }) => !keptIds.has(String(_id)));
  if (deleted.length > 0)
    for (const child of childCollections.get(plural) ?? []) await deleteChildren(store, removal, deleted, child);
  return deletedCount;
}

/** Deletes the nodes of an entry, those that changes of many objects have claimed after these. */
async function deleteUnclaimed(store: Store, { plural, nodes, above }: Removal): Promise<number> {
  const collection = store.db.collection(plural);
  const [root] = nodes;
  const isRoot = above === undefined && root !== undefined;
  const _id = isRoot ? root._id : { $in: nodes.map((node) => node._id) };
  const filter = { _id, ...(above && { parent: { $in: above } }) };
  const condition = { ...filter, ...unclaimed };
  let deleted = 0;
  do {
    // a single deletion is retried by the driver, which keeps its count exact
    const { deletedCount } = isRoot
      ? await collection.deleteOne(condition)
      : await retryOnce(() => collection.deleteMany(condition));
    deleted += deletedCount;
  } while (deleted < nodes.length && (await canRetry(store, plural, filter)));
  return deleted;
}

async function deleteChildren(
  store: Store,
  removal: Removal,
  deleted: readonly NodeRef[],
  { plural, field }: { plural: string; field: string },
): Promise<void> {
  const { db } = store;
  const { root, account, user, request_id } = removal;
  const above = deleted.map(({ _id }) => _id);
  const children = { account, [field]: { $in: deleted.map(({ id }) => id) }, parent: { $in: above } };
  if (!childCollections.has(plural)) {
    await deleteInPieces(db, removal, plural, children);
    return;
  }
  const options = { projection: buildNodeProjection(plural), limit: max_nodes };
  for (;;) {
    const found = await db.collection(plural).find(children, options).toArray();
    if (found.length === 0) return;
    const nodes = found.map((document) => describeNode(plural, document));
    const entry = { root, account, plural, nodes, above, user, request_id, at: Date.now(), done: false };
    const removal: Removal = { _id: db.newId(), ...entry };
    await removals(db).insertOne(removal as mongo.OptionalUnlessRequiredId<Removal>);
    await deleteNodes(store, removal);
  }
}

/** Deletes all that match, a bounded number at a time. */
async function deleteInPieces(db: Database, removal: Removal, plural: string, filter: object): Promise<void> {
  const collection = db.collection(plural);
  const options = { projection: buildLeafProjection(plural), limit: max_deleted, maxTimeMS: read_limit_ms };
  for (;;) {
    const found = await collection.find(filter, options).toArray();
    if (found.length === 0) return;
    await writeLeafTombstones(db, removal, plural, found);
    const _id = { $in: found.map((document) => document._id) };
    await retryOnce(() => collection.deleteMany({ _id }));
    if (found.length < max_deleted) return;
  }
}

/** Deletes models; their devices keep the inherited properties (reference/devices.md#model-properties). */
async function removeLinked(store: Store, removal: Removal): Promise<number> {
  const { db } = store;
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
      await writeNodeTombstones(db, removal);
      last = { ...removal, ...(isPlainObject(properties) && { properties: new OpaqueJson(properties) }) };
      await removals(db).updateOne({ _id: removal._id }, { $set: { properties: last.properties ?? null } });
      await detachFromModel(db, last, node.id);
      const { deletedCount } = await collection.deleteOne({ ...query, version, ...unclaimed });
      removed += deletedCount;
      if (deletedCount === 0) await settleClaims(store, removal.plural, query);
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
