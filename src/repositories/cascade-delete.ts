import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { type Collection, type Database, read_limit_ms } from '../db/database.js';
import { isTimeout, retryOnce } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { collections, referencedBy } from '../db/indexes.js';
import { OpaqueJson } from '../db/opaque-json.js';
import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields/object.js';
import { toPlainJson } from '../serialize/plain-json.js';
import type { OperationContext, Store } from './context.js';

interface NodeRef {
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
  nodes: readonly NodeRef[];
  /** A node is deleted only if its parent is one of these; absent for the root. */
  above?: readonly Id[];
  user: string;
  request_id: string;
  /** Properties of a removed model, which its devices keep. */
  properties?: unknown;
  /** Epoch milliseconds. */
  at: number;
  done: boolean;
  /** In the first entry, by the clock of the database: the last sign of life of the instance that carries it out. */
  beat_at?: Date;
  /** Another instance has taken the removal over. */
  replayed?: true;
}

/** Nodes that one journal entry holds. */
const max_nodes = 1000;
/** Documents that one command deletes: well below the socket timeout, so that slow disks delay and do not fail. */
const max_deleted = 5000;
const grace_ms = 60_000;
const beat_ms = 1000;
/** Without a sign of life for so long, another instance takes a removal over. */
const beat_timeout_ms = 5000;

/** Collections of children by parent collection, with the field that names the parent. */
const childCollections = new Map<string, { plural: string; field: string }[]>();
for (const { plural, parentCollections } of collections) {
  for (const [field, parent] of Object.entries(parentCollections))
    childCollections.set(parent, [...(childCollections.get(parent) ?? []), { plural, field }]);
}

/**
 * Deletes a resource and everything below it (reference/resources.md#delete). A removal that outlasts its request goes on;
 * `finishRemovals` completes an interrupted one. @throws AppError notFound (4041)
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
    await saveRoot(db, removal);
    const removed = await withHeartbeat(db, _id, () => deleteNodes(db, removal));
    store.hierarchy.bump(account);
    await removals(db).updateMany({ root: _id }, { $set: { done: true, at: Date.now() } });
    if (removed === 0) throw await nothingRemoved(db, _id);
  } catch (error) {
    if (!isNotFound(error) && !isTimeout(error)) db.markNotReady();
    throw error;
  } finally {
    removalsInProgress.delete(String(_id));
  }
}

/** The object was deleted by another request, or by an instance that has taken this removal over. */
async function nothingRemoved(db: Database, root: Id): Promise<AppError> {
  const entry = await removals(db).findOne({ _id: root }, { projection: { replayed: 1 } });
  return new AppError(entry?.replayed ? 'database' : 'notFound');
}

function isNotFound(error: unknown): boolean {
  return error instanceof AppError && error.failure === 'notFound';
}

/** Ignores notFound (4041), for removals of objects that may not exist any more. */
export function ignoreNotFound(error: unknown): void {
  if (!isNotFound(error)) throw error;
}

/**
 * Completes removals whose instance shows no sign of life any more, and replays completed ones once after `grace_ms`. Runs
 * before the service is ready, then periodically. @param now_ms epoch milliseconds
 */
export async function finishRemovals({ db, removalsInProgress }: Store, now_ms: number): Promise<void> {
  const journal = removals(db);
  for (const root of await journal.distinct('root', { done: false })) {
    if (removalsInProgress.has(String(root)) || !(await takeOver(db, root))) continue;
    await withHeartbeat(db, root, async () => {
      // what one entry deletes no longer leads to what is below it: each entry is replayed
      for await (const removal of journal.find({ root, done: false }, { sort: { _id: 1 } }))
        await deleteNodes(db, removal);
    });
    await journal.updateMany({ root }, { $set: { done: true, at: Date.now() } });
  }
  for await (const removal of journal.find({ done: true, at: { $lt: now_ms - grace_ms } }, { sort: { _id: 1 } })) {
    await deleteNodes(db, removal);
    await journal.deleteOne({ _id: removal._id });
  }
}

/** Replays the removals of these objects for references created since. */
export async function replayRemovals({ db }: Store, ids: readonly Id[]): Promise<void> {
  for await (const removal of removals(db).find({ 'nodes._id': { $in: ids } })) await deleteNodes(db, removal);
}

function removals(db: Database): mongo.Collection<Removal> {
  return db.collection('removals') as unknown as mongo.Collection<Removal>;
}

/** Saves the first journal entry with the time of the database. */
async function saveRoot(db: Database, removal: Removal): Promise<void> {
  const { _id, ...fields } = removal;
  const entry = { $set: { ...literals(fields), beat_at: '$$NOW' } };
  await removals(db).updateOne({ _id }, [entry], { upsert: true });
}

/** Values of an update pipeline that are not to be read as expressions. */
function literals(fields: object): object {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, { $literal: value }]));
}

/**
 * Waits until a removal shows a sign of life or has been silent for `beat_timeout_ms`.
 * @returns whether this instance carries it out from now on
 */
async function takeOver(db: Database, root: Id): Promise<boolean> {
  // entries of version 0.1.0 have no `beat_at`
  const lastBeat = { $ifNull: ['$beat_at', new Date(0)] };
  const isSilent = { $expr: { $lte: [lastBeat, { $subtract: ['$$NOW', beat_timeout_ms] }] } };
  const claim = [{ $set: { beat_at: '$$NOW', replayed: true } }];
  for (let seen: Date | undefined; ; await sleep(beat_ms / 2)) {
    const { matchedCount } = await removals(db).updateOne({ _id: root, ...isSilent }, claim);
    if (matchedCount === 1) return true;
    const entry = await removals(db).findOne({ _id: root }, { projection: { beat_at: 1 } });
    // the first entry is deleted before the others
    if (entry === null) return true;
    const { beat_at } = entry;
    if (seen !== undefined && beat_at !== undefined && beat_at > seen) return false;
    seen ??= beat_at;
  }
}

/** Shows other instances, while `work` runs, that this one carries out the removal. */
async function withHeartbeat<T>(db: Database, root: Id, work: () => Promise<T>): Promise<T> {
  const beat = () => removals(db).updateOne({ _id: root }, [{ $set: { beat_at: '$$NOW' } }]);
  const timer = setInterval(() => void beat().catch(() => undefined), beat_ms);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** @returns the number of deleted nodes */
async function deleteNodes(db: Database, removal: Removal): Promise<number> {
  const { plural, nodes, above } = removal;
  const collection = db.collection(plural);
  if (referencedBy.has(plural)) return removeLinked(db, removal);
  const chosen = { _id: { $in: nodes.map(({ _id }) => _id) } };
  const [root] = nodes;
  // a single deletion is retried by the driver, which keeps its count exact
  const { deletedCount } =
    above === undefined && root !== undefined
      ? await collection.deleteOne({ _id: root._id })
      : await retryOnce(() => collection.deleteMany({ ...chosen, ...(above && { parent: { $in: above } }) }));
  // a node that was moved to another parent since is kept, with its children
  const kept = above === undefined ? [] : await collection.find(chosen, { projection: { _id: 1 } }).toArray();
  const keptIds = new Set(kept.map(({ _id }) => String(_id)));
  const deleted = nodes.filter(({ _id }) => !keptIds.has(String(_id)));
  if (deleted.length > 0)
    for (const child of childCollections.get(plural) ?? []) await deleteChildren(db, removal, deleted, child);
  return deletedCount;
}

async function deleteChildren(
  db: Database,
  { root, account, user, request_id }: Removal,
  deleted: readonly NodeRef[],
  { plural, field }: { plural: string; field: string },
): Promise<void> {
  const above = deleted.map(({ _id }) => _id);
  const children = { account, [field]: { $in: deleted.map(({ id }) => id) }, parent: { $in: above } };
  if (!childCollections.has(plural)) {
    await deleteInPieces(db.collection(plural), children);
    return;
  }
  const options = { projection: { id_developer: 1 }, limit: max_nodes };
  for (;;) {
    const found = await db.collection(plural).find(children, options).toArray();
    if (found.length === 0) return;
    const nodes = found.map(({ _id, id_developer }) => ({ _id, id: String(id_developer) }));
    const entry = { root, account, plural, nodes, above, user, request_id, at: Date.now(), done: false };
    const removal: Removal = { _id: db.newId(), ...entry };
    await removals(db).insertOne(removal as mongo.OptionalUnlessRequiredId<Removal>);
    await deleteNodes(db, removal);
  }
}

/** Deletes all that match, a bounded number at a time. */
async function deleteInPieces(collection: Collection, filter: object): Promise<void> {
  const options = { projection: { _id: 1 }, limit: max_deleted, maxTimeMS: read_limit_ms };
  for (;;) {
    const found = await collection.find(filter, options).toArray();
    if (found.length === 0) return;
    const _id = { $in: found.map((document) => document._id) };
    await retryOnce(() => collection.deleteMany({ _id }));
    if (found.length < max_deleted) return;
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
