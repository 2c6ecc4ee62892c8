import type { mongo } from 'mongoose';
import type { Collection, Database } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { AppError } from '../../errors.js';
import { resources } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import { unclaimed } from '../claims.js';
import type { OperationContext, Store } from '../context.js';
import { type JournalRoot, saveRoot } from '../journal.js';
import type { NodeRef } from '../removed-nodes.js';
import type { BulkChange } from './change.js';

/** Root entry of the journal: a change of many objects, and how far it has come. */
export interface ChangeRoot extends JournalRoot {
  /**
   * While `claiming`, nothing is changed. `confirmed`: the claimed objects are exactly those that match, and any instance
   * completes the change. `void`: the claims are being released.
   */
  state: 'claiming' | 'confirmed' | 'void';
  account: string;
  plural: string;
  /** The fields to change as JSON; absent: the objects are deleted. */
  values?: string;
  /** Internal ids of the objects that the values refer to, by field. */
  references: Readonly<Record<string, Id>>;
  user: string;
  request_id: string;
  /** Epoch seconds. */
  now: number;
}

/** Objects that are still to be changed; deleted in the transaction that changes them. */
export interface ChangePiece {
  _id: Id;
  root: Id;
  nodes: readonly NodeRef[];
}

/** Pieces without a root entry are left over by a crash after so long. */
const leftover_ms = 600_000;

/** The entries of the journal, for the functions of all journals. */
export function journalOf(db: Database): Collection {
  return db.collection('bulkchanges');
}

/** The root entries. */
export function rootsOf(db: Database): mongo.Collection<ChangeRoot> {
  return journalOf(db) as unknown as mongo.Collection<ChangeRoot>;
}

/** The pieces of all changes. */
export function piecesOf(db: Database): mongo.Collection<ChangePiece> {
  return journalOf(db) as unknown as mongo.Collection<ChangePiece>;
}

/** Begins a change: its objects may be claimed from now on. */
export async function openRoot(
  ctx: OperationContext,
  { resource, values, references }: BulkChange,
): Promise<ChangeRoot> {
  const { account, user, request_id, now } = ctx;
  const root: ChangeRoot = {
    _id: ctx.store.db.newId(),
    ...{ state: 'claiming', account, plural: resource.plural, user, request_id, now },
    ...(values && { values: JSON.stringify(values) }),
    references: Object.fromEntries(references),
  };
  await saveRoot(journalOf(ctx.store.db), root);
  return root;
}

/** Decides that a change takes place. @throws AppError database (5031) if another instance has made it void */
export async function confirmRoot(db: Database, _id: Id): Promise<void> {
  const { matchedCount } = await rootsOf(db).updateOne({ _id, state: 'claiming' }, { $set: { state: 'confirmed' } });
  if (matchedCount === 0) throw new AppError('database');
}

/** Makes a change void unless it is confirmed, and releases its objects. May be repeated. */
export async function withdrawRoot(db: Database, { _id, plural }: Pick<ChangeRoot, '_id' | 'plural'>): Promise<void> {
  const isVoidable = { _id, state: { $ne: 'confirmed' } } as const;
  const { matchedCount } = await rootsOf(db).updateOne(isVoidable, { $set: { state: 'void' } });
  if (matchedCount === 0) return;
  for await (const piece of piecesOf(db).find({ root: _id })) {
    const claimed = { _id: { $in: piece.nodes.map((node) => node._id) }, claim: piece._id };
    await retryOnce(() => db.collection(plural).updateMany(claimed, { $unset: { claim: 1 } }));
    await piecesOf(db).deleteOne({ _id: piece._id });
  }
  await rootsOf(db).deleteOne(isVoidable);
}

/** Restores a change from the journal, with the context of its request. */
export function restoreChange(store: Store, root: ChangeRoot): { ctx: OperationContext; change: BulkChange } {
  const { account, plural, user, request_id, now } = root;
  const resource = resources.find((type) => type.plural === plural);
  if (resource === undefined) throw new Error(`a bulk change of unknown ${plural}`);
  const values = root.values === undefined ? undefined : (JSON.parse(root.values) as Values);
  const references = new Map(Object.entries(root.references));
  return { ctx: { store, account, user, request_id, now }, change: { resource, values, references } };
}

/** Deletes pieces that an instance wrote after others had made its change void. */
export async function deleteLeftovers(db: Database, now_ms: number): Promise<void> {
  const known = await rootsOf(db).distinct('_id', { plural: { $exists: true } });
  const isLeftover = { _id: { $lt: db.buildMinId(now_ms - leftover_ms) }, root: { $nin: known } };
  await piecesOf(db).deleteMany({ plural: { $exists: false }, ...isLeftover });
}

/** Matches objects that are unclaimed, or claimed by this piece. */
export function buildClaimable(piece: Id): object {
  return { claim: { $in: [unclaimed.claim, piece] } };
}
