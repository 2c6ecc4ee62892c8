import mongoose from 'mongoose';
import type { StoredNode } from '../../db/batching/loader.js';
import type { Database, DatabaseAccess } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { resources } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import type { OperationContext, Store } from '../context.js';
import type { RelatedCondition } from '../select/related-devices.js';
import type { ObjectSelection } from '../select/selection.js';
import { type JournalRoot, saveRoot } from '../tree/journal.js';
import type { BulkAction } from './action.js';
import type { BulkChange } from './change.js';

const { EJSON } = mongoose.mongo.BSON;

/** Root entry of the journal: a change of many objects. */
export interface ChangeRoot extends JournalRoot {
  /** The objects are as many as the request confirmed: any instance completes the change. */
  isConfirmed: boolean;
  account: string;
  plural: string;
  /** The fields to change as JSON; absent: the objects are deleted. */
  values?: string;
  /** Name of the action that has the values instead. */
  action?: string;
  /** Internal ids of the objects that the values refer to, by field. */
  references: Readonly<Record<string, Id>>;
  /** The conditions that an object still has to meet, as extended JSON. */
  filter: string;
  /** Those on documents of other collections, as extended JSON. */
  conditions?: string;
  user: string;
  request_id: string;
  /** Epoch seconds. */
  now: number;
}

/** Objects that are still to be changed; deleted in the transaction that changes them. */
export interface ChangePiece {
  _id: Id;
  root: Id;
  ids: readonly Id[];
}

/** A change with the conditions that its objects meet, which are compared again for each piece. */
export interface ChangeRun extends Pick<ObjectSelection, 'unselected' | 'related'> {
  ctx: OperationContext;
  change: BulkChange;
}

/** The entries of the journal, for the functions of all journals. */
export const journalOf = (db: DatabaseAccess) => db.collection('bulkchanges');

/** The root entries. */
export const rootsOf = (db: Database) => db.collection<ChangeRoot>('bulkchanges');

/** The pieces of all changes. */
export const piecesOf = (db: Database) => db.collection<ChangePiece>('bulkchanges');

/** Begins a change, which is without effect until it is confirmed. */
export async function openRoot(
  ctx: OperationContext,
  change: BulkChange,
  selection: ObjectSelection,
): Promise<ChangeRoot> {
  const { account, user, request_id, now } = ctx;
  const { unselected, related } = selection;
  const { resource, values, references, action } = change;
  const root: ChangeRoot = {
    _id: ctx.store.db.newId(),
    ...{ isConfirmed: false, account, plural: resource.plural, user, request_id, now },
    ...(values && { values: JSON.stringify(values) }),
    ...(action && { action: action.name }),
    references: Object.fromEntries([...references].map(([field, { _id }]) => [field, _id])),
    filter: EJSON.stringify(unselected, { relaxed: false }),
    ...(related && { conditions: EJSON.stringify(related) }),
  };
  await saveRoot(journalOf(ctx.store.db), root);
  return root;
}

/** Deletes the entries of a change that is not confirmed. */
export async function withdrawRoot(db: Database, root: Id): Promise<void> {
  const { deletedCount } = await rootsOf(db).deleteOne({ _id: root, isConfirmed: false });
  if (deletedCount === 1) await piecesOf(db).deleteMany({ root });
}

/** Restores a change from the journal, with the context of its request. */
export async function restoreRun(store: Store, root: ChangeRoot, actions: readonly BulkAction[]): Promise<ChangeRun> {
  const { account, plural, user, request_id, now } = root;
  const resource = resources.find((type) => type.plural === plural);
  if (resource === undefined) throw new Error(`a bulk change of unknown ${plural}`);
  const action = actions.find(({ name }) => name === root.action);
  if (action?.name !== root.action) throw new Error(`an unknown bulk action ${root.action}`);
  const values = root.values === undefined ? undefined : (JSON.parse(root.values) as Values);
  const references = new Map<string, StoredNode>();
  for (const [field, _id] of Object.entries(root.references)) {
    const { plural: target = '' } = resource.fields[field]?.references ?? {};
    const removed = { _id, account, id_developer: '', enabled: false, ancestors: [] };
    references.set(field, (await store.loader(target).node(_id)) ?? removed);
  }
  return {
    ctx: { store, account, limit: undefined, user, request_id, now },
    change: { resource, values, bytes: root.values?.length ?? 0, references, action },
    unselected: EJSON.parse(root.filter) as Values,
    related: root.conditions === undefined ? [] : (EJSON.parse(root.conditions) as RelatedCondition[]),
  };
}

/** Converts changes that version 0.2.0 left unfinished: it recorded a state, the nodes of each piece, and claims on objects. */
export async function upgradePieces(db: DatabaseAccess): Promise<void> {
  const journal = journalOf(db);
  for await (const root of journal.find({ state: { $exists: true } })) {
    for await (const piece of journal.find({ root: root._id, nodes: { $exists: true } })) {
      const ids = (piece.nodes as { _id: Id }[]).map(({ _id }) => _id);
      const claimed = { _id: { $in: ids }, claim: piece._id };
      await db.collection(root.plural as string).updateMany(claimed, { $unset: { claim: 1 } });
      await journal.updateOne({ _id: piece._id }, { $set: { ids }, $unset: { nodes: 1 } });
    }
    const converted = { isConfirmed: root.state === 'confirmed', filter: '{}' };
    await journal.updateOne({ _id: root._id }, { $set: converted, $unset: { state: 1 } });
  }
}

/** Pieces without a root entry are left over by a crash after so long. */
const leftover_ms = 600_000;

/** Deletes pieces whose change was withdrawn while they were written. @param now_ms epoch milliseconds */
export async function deleteLeftovers(db: Database, now_ms: number): Promise<void> {
  const roots = await rootsOf(db).distinct('_id', { plural: { $exists: true } });
  const isLeftover = { _id: { $lt: db.buildMinId(now_ms - leftover_ms) }, root: { $nin: roots } };
  await piecesOf(db).deleteMany({ plural: { $exists: false }, ...isLeftover });
}
