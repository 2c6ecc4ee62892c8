import type { mongo } from 'mongoose';
import type { StoredNode } from '../../db/batching/loader.js';
import type { Database } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { ancestorIndexOf } from '../../db/indexes.js';
import { hasMatch } from '../../db/raw-find.js';
import { resources } from '../../resources/index.js';
import type { Resource } from '../../schema/resource.js';
import type { OperationContext, Store } from '../context.js';
import { removeBelow } from './cascade-delete.js';
import { type JournalRoot, resumeJournaled, runJournaled, saveRoot } from './journal.js';

/**
 * Journal entry of a move, written before the object gets its new parent: what is below it has the former ancestors until any
 * instance has aligned it.
 */
interface Move extends JournalRoot {
  account: string;
  plural: string;
  nodes: readonly Id[];
  user: string;
  request_id: string;
}

/** Documents that one command changes: well below the socket timeout. */
const max_aligned = 2000;

const journalOf = (db: Database) => db.collection('moves');

const typesBelow = (plural: string) =>
  resources.filter(({ ancestors }) => ancestors.some((level) => level.plural === plural));

/** Reports whether objects of a type have others below them that store them as an ancestor. */
export function hasDescendants({ plural }: Resource): boolean {
  return typesBelow(plural).length > 0;
}

/** Moves an object with everything below it (reference/resources.md#update). @param write gives it its new parent */
export async function moveSubtree<Result>(
  ctx: OperationContext,
  resource: Resource,
  _id: Id,
  write: () => Promise<Result | undefined>,
): Promise<Result | undefined> {
  const { store } = ctx;
  const move = createMove(ctx, resource, [_id]);
  const run = () =>
    runJournaled(store, journalOf(store.db), move._id, async () => {
      await saveRoot(journalOf(store.db), move);
      const result = await write();
      if (result !== undefined) await alignDescendants(store, move);
      await journalOf(store.db).deleteOne({ _id: move._id });
      return result;
    });
  return store.costly.run(ctx.account, run);
}

/** Reports whether a move of an object has not reached all that is below it. */
export async function isBeingMoved({ db }: Store, _id: Id): Promise<boolean> {
  return hasMatch(journalOf(db), { nodes: _id });
}

function createMove(
  { store, account, user, request_id }: OperationContext,
  { plural }: Resource,
  nodes: readonly Id[],
): Move {
  return { _id: store.db.newId(), account, plural, nodes, user, request_id };
}

/** Records the move of objects in the transaction that moves them; `finishMove` follows its commit. @returns the entry */
export async function recordMove(
  ctx: OperationContext,
  resource: Resource,
  nodes: readonly Id[],
  session: mongo.ClientSession,
): Promise<Id> {
  const move = createMove(ctx, resource, nodes);
  await saveRoot(journalOf(ctx.store.db), move, session);
  return move._id;
}

/** Aligns what is below moved objects, and deletes the journal entry. */
export async function finishMove(store: Store, root: Id): Promise<void> {
  const { db } = store;
  await runJournaled(store, journalOf(db), root, () => alignMoved(store, root));
}

/** Completes moves whose instance shows no sign of life. Runs before the service is ready, then periodically. */
export async function finishMoves(store: Store): Promise<void> {
  const { db } = store;
  const roots: Id[] = await journalOf(db).distinct('_id');
  await resumeJournaled(store, journalOf(db), roots, (root) => alignMoved(store, root));
}

async function alignMoved(store: Store, root: Id): Promise<void> {
  const journal = journalOf(store.db);
  const move = await store.db.collection<Move>('moves').findOne({ _id: root });
  if (move === null) return;
  await alignDescendants(store, move);
  await journal.deleteOne({ _id: root });
}

async function alignDescendants(store: Store, { _id: root, plural, nodes, ...by }: Move): Promise<void> {
  for (const _id of nodes) {
    const isThere = await alignBelow(store, plural, _id);
    // deleted with its new parent, from where what is below it could not be found
    if (!isThere) await removeBelow(store.db, { ...by, root, plural, above: [_id] });
  }
}

/**
 * Gives everything below an object its ancestors, until these stand still: another move may change them, and what is below,
 * between their reading and the last write. @returns whether the object exists
 */
export async function alignBelow(store: Store, plural: string, _id: Id): Promise<boolean> {
  let aligned: string | undefined;
  for (;;) {
    const node = await store.loader(plural).node(_id);
    if (node === undefined) return false;
    if (node.ancestors.join() === aligned) return true;
    await writeAncestors(store.db, plural, node);
    aligned = node.ancestors.join();
  }
}

/** Writes each document below an object at once, so that readers find it either at the former place or at the new one. */
async function writeAncestors(db: Database, plural: string, node: StoredNode): Promise<void> {
  const { _id, account, ancestors } = node;
  const below = { $slice: ['$ancestors', ancestors.length, 10] };
  const update = [{ $set: { ancestors: { $concatArrays: [[...ancestors], below] } } }];
  for (const type of typesBelow(plural)) {
    const collection = db.collection(type.plural);
    // an internal id belongs to one level, so an object that has all of them has them in order
    const isOutdated = { account, $and: [{ ancestors: _id }, { ancestors: { $not: { $all: [...ancestors] } } }] };
    for (;;) {
      const options = { projection: { _id: 1 }, limit: max_aligned, hint: ancestorIndexOf(type) };
      const outdated = await collection.find(isOutdated, options).toArray();
      if (outdated.length === 0) break;
      const ids = { $in: outdated.map((document) => document._id) };
      await retryOnce(() => collection.updateMany({ _id: ids, ...isOutdated }, update));
    }
  }
}
