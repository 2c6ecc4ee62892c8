import type { mongo } from 'mongoose';
import type { Collection, Database, StoredDocument, StoredObject } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { ancestorIndexOf, referencedBy } from '../../db/indexes.js';
import { OpaqueJson } from '../../db/opaque-json.js';
import { findMany, findOneRaw, hasMatch } from '../../db/raw-find.js';
import { isWithin } from '../../db/reach.js';
import { AppError } from '../../errors.js';
import { device, resources } from '../../resources/index.js';
import { isPlainObject } from '../../schema/fields/object.js';
import type { Resource } from '../../schema/resource.js';
import { toPlainJson } from '../../serialize/plain-json.js';
import type { OperationContext, Store } from '../context.js';
import { assertRemovable } from '../resources.js';
import { type JournalRoot, resumeJournaled, runJournaled, saveRoot } from './journal.js';
import { assertUnprotected } from './references.js';
import {
  deleteLeaves,
  deleteNamedNode,
  describeNode,
  leavesOf,
  type NodeRef,
  nodeProjection,
  type RecordedRemoval,
  writeNodeTombstones,
} from './removed-nodes.js';
import { withdrawTombstones } from './tombstones.js';

/**
 * Journal entry of a removal, written before anything is deleted: any instance can replay it, any number of times. It is
 * kept for `grace_ms` after the removal, and then replayed for children that an interrupted create left behind.
 */
export interface Removal extends JournalRoot, RecordedRemoval {
  /** The named object is deleted only while it is below this one, which the request was limited to. */
  within?: Id;
  /** Properties of a removed model, which its devices keep. */
  properties?: unknown;
  /** Epoch milliseconds. */
  at: number;
  done: boolean;
}

/** Nodes that one journal entry holds. */
const max_nodes = 1000;
const grace_ms = 60_000;

/**
 * Deletes a resource and everything below it (reference/resources.md#delete). A removal that outlasts its request continues;
 * `finishRemovals` completes an interrupted one. @param onGone called when only streams are left, which nothing shows
 * @throws AppError notFound (4041), invalid (4003) if others need it
 */
export async function removeTree(
  ctx: OperationContext,
  resource: { plural: string },
  id: string,
  onGone?: () => void,
): Promise<void> {
  const { store, account, limit, user, request_id } = ctx;
  const { plural } = resource;
  const { db } = store;
  const objects = db.collection<StoredObject>(plural);
  const object = await objects.findOne({ account, id_developer: id }, { projection: nodeProjection });
  if (object === null) throw new AppError('notFound');
  if (!isWithin(limit, plural, { _id: object._id, ancestors: object.ancestors ?? [] })) throw new AppError('notFound');
  assertRemovable(ctx, resource, object._id);
  await assertUnprotected({ store, account }, plural, [id]);
  const _id = db.newId();
  const fixed = { root: _id, account, plural, nodes: [describeNode(object)], user, request_id };
  const removal: Removal = { _id, ...fixed, ...(limit && { within: limit._id }), at: Date.now(), done: false };
  await runJournaled(store, journalOf(db), _id, async () => {
    await saveRoot(journalOf(db), removal);
    await withdrawIfProtected(store, removal);
    if ((await carryOut(store, [removal], onGone)) === 0) throw await nothingRemoved(db, removal);
  });
}

/** Deletes the nodes of entries that have one root, and everything below them. @returns the number of nodes deleted here */
async function carryOut(store: Store, entries: readonly Removal[], onGone?: () => void): Promise<number> {
  const { db, hierarchy } = store;
  const [{ root, account }] = entries as readonly [Removal];
  let removed = 0;
  for (const entry of entries) removed += await deleteNodes(db, entry);
  hierarchy.bump(account);
  onGone?.();
  await deleteStreams(db, { root });
  await markDone(db, root);
  return removed;
}

/** Checks again behind the journal entry, which a request that begins to need the object looks for (`isBeingRemoved`). */
async function withdrawIfProtected(store: Store, { _id, account, plural, nodes }: Removal): Promise<void> {
  const ids = nodes.map(({ id }) => id);
  await assertUnprotected({ store, account }, plural, ids).catch(async (error: unknown) => {
    await removals(store.db).deleteOne({ _id });
    throw error;
  });
}

/** Reports whether a removal of an object is under way. */
export async function isBeingRemoved({ db }: Store, _id: Id): Promise<boolean> {
  return (await removals(db).countDocuments({ 'nodes._id': _id, done: false }, { limit: 1 })) > 0;
}

async function markDone(db: Database, root: Id): Promise<void> {
  await removals(db).updateMany({ root }, { $set: { done: true, at: Date.now() } });
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
  await saveRoot(journalOf(db), first, session);
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
  const bson = model && (await findOneRaw(collection, { _id: model._id }, { session }));
  const properties = bson && toPlainJson(bson).properties;
  return isPlainObject(properties) ? { properties: new OpaqueJson(properties) } : {};
}

/** Deletes what is below objects that `removeInTransaction` has deleted. @param onGone as for `removeTree` */
export async function finishRemoval(store: Store, entries: readonly Removal[], onGone?: () => void): Promise<void> {
  const [first] = entries;
  if (first !== undefined)
    await runJournaled(store, journalOf(store.db), first.root, () => carryOut(store, entries, onGone));
}

/** The object was deleted by another request, or by an instance that has taken this removal over. */
async function nothingRemoved(db: Database, { _id }: Removal): Promise<AppError> {
  const entry = await removals(db).findOne({ _id }, { projection: { replayed: 1 } });
  return new AppError(entry?.replayed ? 'database' : 'notFound');
}

/** Ignores notFound (4041), for removals of objects that may not exist any more. */
export function ignoreNotFound(error: unknown): void {
  if (!(error instanceof AppError && error.failure === 'notFound')) throw error;
}

/** Completes removals whose instance shows no sign of life any more. Runs before the service is ready, then periodically. */
export async function finishRemovals(store: Store): Promise<void> {
  const { db } = store;
  const unfinished = await removals(db).distinct('root', { done: false });
  await resumeJournaled(store, journalOf(db), unfinished, async (root) => {
    // what one entry deletes no longer leads to what is below it: each entry is replayed
    for await (const removal of removals(db).find({ root, done: false }, { sort: { _id: 1 } }))
      await deleteNodes(db, removal);
    await deleteStreams(db, { root });
    await markDone(db, root);
  });
}

/** Replays completed removals once after `grace_ms`, while `isLeaseHeld`. @param now_ms epoch milliseconds */
export async function replayCompleted(
  store: Store,
  now_ms: number,
  isLeaseHeld: () => boolean = () => true,
): Promise<void> {
  const journal = removals(store.db);
  for await (const removal of journal.find({ done: true, at: { $lt: now_ms - grace_ms } }, { sort: { _id: 1 } })) {
    if (!isLeaseHeld()) return;
    await replay(store.db, removal);
    await journal.deleteOne({ _id: removal._id });
  }
}

/** Replays the removals of these objects for references created since. */
export async function replayRemovals(store: Store, objects: readonly { _id: Id }[]): Promise<void> {
  const cursor = removals(store.db).find({ 'nodes._id': { $in: objects.map(({ _id }) => _id) } });
  for await (const removal of cursor) await replay(store.db, removal);
}

async function replay(db: Database, removal: Removal): Promise<void> {
  await deleteNodes(db, removal);
  await deleteStreams(db, { _id: removal._id });
}

const journalOf = (db: Database) => db.collection('removals');
const removals = (db: Database) => db.collection<Removal>('removals');

/** Deletes the nodes of an entry and everything below them but streams. @returns the number of deleted nodes */
async function deleteNodes(db: Database, removal: Removal): Promise<number> {
  const { plural, nodes } = removal;
  if (referencedBy.has(plural)) return removeLinked(db, removal);
  const deleted = await deletePiece(db, removal);
  await removeBelow(db, { ...removal, above: nodes.map(({ _id }) => _id) });
  return deleted;
}

/** Objects of one type that are gone, and who deleted them. */
interface GoneObjects extends Pick<Removal, 'root' | 'account' | 'plural' | 'user' | 'request_id'> {
  above: readonly Id[];
}

/** Deletes what is below objects that are gone. */
export async function removeBelow(db: Database, gone: GoneObjects): Promise<void> {
  // parents first: a create below one that is deleted already finds no parent
  for (const type of resources)
    if (type.ancestors.some(({ plural }) => plural === gone.plural)) await deleteBelow(db, gone, type);
}

/** Deletes the nodes of an entry, and what belongs to them directly. @returns the number of deleted nodes that the request named */
async function deletePiece(db: Database, removal: Removal): Promise<number> {
  const { root, plural, nodes, above, within } = removal;
  const collection = db.collection(plural);
  const [named] = nodes;
  let deleted = 0;
  if (above === undefined && named !== undefined) {
    deleted = await deleteNamedNode(db, removal, named, within && { ancestors: within });
  } else {
    await writeNodeTombstones(db, removal);
    const below = { _id: { $in: nodes.map(({ _id }) => _id) }, ancestors: { $in: [...(above ?? [])] } };
    await retryOnce(() => collection.deleteMany(below));
  }
  // a node that was moved away since is kept, with everything below it
  const isConditional = above !== undefined || within !== undefined;
  const kept = isConditional ? await findExisting(collection, nodes) : [];
  if (above !== undefined) await withdrawTombstones(db, root, kept);
  await deleteLeaves(db, { ...removal, nodes: leaveOut(nodes, kept) }, false);
  return deleted;
}

function leaveOut(nodes: readonly NodeRef[], kept: readonly Id[]): NodeRef[] {
  const ids = new Set(kept.map(String));
  return nodes.filter(({ _id }) => !ids.has(String(_id)));
}

/** Deletes the streams of the deleted devices of journal entries. */
async function deleteStreams(db: Database, entries: Partial<Pick<Removal, '_id' | 'root'>>): Promise<void> {
  for await (const removal of removals(db).find({ ...entries, plural: device.plural }, { sort: { _id: 1 } })) {
    const kept = await findExisting(db.collection(device.plural), removal.nodes);
    await deleteLeaves(db, { ...removal, nodes: leaveOut(removal.nodes, kept) }, true);
  }
}

async function findExisting(collection: Collection, nodes: readonly { _id: Id }[]): Promise<Id[]> {
  return collection.distinct('_id', { _id: { $in: nodes.map(({ _id }) => _id) } });
}

/** Deletes the objects of one type below deleted objects, a bounded number at a time. */
async function deleteBelow(
  db: Database,
  { root, account, above, user, request_id }: GoneObjects,
  type: Resource,
): Promise<void> {
  const { plural } = type;
  const moving: Id[] = [];
  const options = { projection: { ...nodeProjection, parent: 1 }, limit: max_nodes, hint: ancestorIndexOf(type) };
  for (;;) {
    const below = { account, ancestors: { $in: [...above] }, _id: { $nin: moving } };
    const candidates = await findMany(db.collection<StoredObject>(plural), below, options);
    if (candidates.length === 0) return;
    // parents are deleted before their children: an object whose parent exists is being moved away with it
    const parents = await findParents(db, type, candidates);
    const isDoomed = ({ parent }: StoredDocument) => !parents.has(String(parent));
    moving.push(...candidates.filter((document) => !isDoomed(document)).map(({ _id }) => _id));
    const nodes = candidates.filter(isDoomed).map(describeNode);
    if (nodes.length === 0) continue;
    const _id = db.newId();
    const piece: Removal = { _id, root, account, plural, nodes, above, user, request_id, at: Date.now(), done: false };
    // once an object is deleted, only the entry leads to what it had
    if (leavesOf(plural).length > 0) await removals(db).insertOne(piece as mongo.OptionalUnlessRequiredId<Removal>);
    await deletePiece(db, piece);
  }
}

/** @returns the ids of those parents that exist */
async function findParents(
  db: Database,
  { parentCollections }: Resource,
  children: readonly StoredDocument[],
): Promise<ReadonlySet<string>> {
  const nodes = children.map(({ parent }) => ({ _id: parent as Id }));
  const existing = await Promise.all(
    Object.values(parentCollections).map((plural) => findExisting(db.collection(plural), nodes)),
  );
  return new Set(existing.flat().map(String));
}

/** Deletes models; their devices keep the inherited properties (reference/devices.md#model-properties). */
async function removeLinked(db: Database, removal: Removal): Promise<number> {
  const collection = db.collection(removal.plural);
  let removed = 0;
  for (const node of removal.nodes) {
    const query = { _id: node._id };
    for (let last = removal; ; ) {
      const model = await findOneRaw(collection, query);
      if (model === undefined) {
        // a new model with the same identifier keeps the devices
        const successor = { account: removal.account, id_developer: node.id };
        if (!(await hasMatch(collection, successor))) await detachFromModel(db, last, node.id);
        break;
      }
      const { properties, version } = toPlainJson(model);
      last = { ...removal, ...(isPlainObject(properties) && { properties: new OpaqueJson(properties) }) };
      await removals(db).updateOne({ _id: removal._id }, { $set: { properties: last.properties ?? null } });
      await detachFromModel(db, last, node.id);
      removed += await deleteNamedNode(db, removal, node, { version });
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
