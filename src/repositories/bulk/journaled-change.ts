import mongoose, { type mongo } from 'mongoose';
import type { Database } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import type { QueryPlan } from '../../db/query-plan.js';
import { findRaw } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import { resources } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import { findElement, getString, toBuffer } from '../../serialize/bson.js';
import type { OperationContext, Store } from '../context.js';
import { type JournalRoot, saveRoot, takeOver, withHeartbeat } from '../journal.js';
import type { Bson } from '../page.js';
import { findReferences } from '../references.js';
import { buildNodeProjection, describeNode, type NodeRef } from '../removed-nodes.js';
import { applyChange, type BulkChange, finishChange, hasStoredDependency, planUpdates } from './change.js';
import { withTransaction } from './transaction.js';

/** Root entry of the journal: a change that is to be completed. Written last, so that a change without it is void. */
interface ChangeRoot extends JournalRoot {
  account: string;
  plural: string;
  filter: object;
  /** The fields to change as JSON; absent: the objects are deleted. */
  values?: string;
  user: string;
  request_id: string;
  /** Epoch seconds. */
  now: number;
}

/** Objects that are still to be changed; deleted in the transaction that changes them. */
interface ChangePiece {
  _id: Id;
  root: Id;
  nodes: readonly NodeRef[];
}

const journalName = 'bulkchanges';
/** Objects of one piece: a short transaction, which streams of its devices seldom get ahead of. */
const max_nodes = 250;
const max_attempts = 100;
/** Time limit of reading all matches. */
const scan_limit_ms = 60_000;
/** Pieces without a root entry are left over by a crash after so long. */
const leftover_ms = 600_000;

function roots(db: Database): mongo.Collection<ChangeRoot> {
  return db.collection(journalName) as unknown as mongo.Collection<ChangeRoot>;
}

function pieces(db: Database): mongo.Collection<ChangePiece> {
  return db.collection(journalName) as unknown as mongo.Collection<ChangePiece>;
}

/**
 * Writes the journal of a change of all objects that match at one moment, and checks each of them.
 * @throws AppError invalid (4003), or conflict (4005) if they are not exactly `confirmed`; then nothing is to be done
 */
export async function saveChange(
  ctx: OperationContext,
  change: BulkChange,
  query: QueryPlan,
  confirmed: number,
): Promise<Id> {
  const { db } = ctx.store;
  const root = db.newId();
  try {
    const matched = await writePieces(ctx, change, query, root, confirmed);
    if (matched !== confirmed) throw new AppError('conflict', { matched });
    const { account, user, request_id, now } = ctx;
    const values = change.values && { values: JSON.stringify(change.values) };
    const entry = { account, plural: change.resource.plural, filter: query.filter, ...values, user, request_id, now };
    await saveRoot(db.collection(journalName), { _id: root, ...entry } as ChangeRoot);
    return root;
  } catch (error) {
    await pieces(db).deleteMany({ root });
    throw error;
  }
}

/** @returns the number of matches; of more than `confirmed`, the rest is only counted */
async function writePieces(
  ctx: OperationContext,
  change: BulkChange,
  { filter, hint }: QueryPlan,
  root: Id,
  confirmed: number,
): Promise<number> {
  const { resource, values } = change;
  const { db } = ctx.store;
  const isChecked = values !== undefined && hasStoredDependency(resource, values);
  const query = {
    filter,
    ...(hint && { hint }),
    ...(!isChecked && { projection: { id_developer: 1 } }),
    maxTimeMS: scan_limit_ms,
    readConcern: { level: 'snapshot' } as const,
  };
  let matched = 0;
  for await (const documents of findRaw(db.collection(resource.plural), query).batches) {
    matched += documents.length;
    if (matched > confirmed) continue;
    if (isChecked) await planUpdates(ctx, change, documents);
    const found = documents.map(toNode);
    const entries: ChangePiece[] = [];
    for (let from = 0; from < found.length; from += max_nodes)
      entries.push({ _id: db.newId(), root, nodes: found.slice(from, from + max_nodes) });
    await pieces(db).insertMany(entries as mongo.OptionalUnlessRequiredId<ChangePiece>[]);
  }
  return matched;
}

function toNode(document: Bson): NodeRef {
  const source = toBuffer(document);
  const { start, end } = findElement(source, 0, '_id') ?? { start: 0, end: 0 };
  // length and subtype precede the bytes of a binary value
  const _id = new mongoose.mongo.UUID(Buffer.from(source.subarray(start + 5, end)));
  return { _id, id: getString(document, 'id_developer') ?? '' };
}

/** Carries out a journaled change. @returns the number of changed objects */
export async function runChange(ctx: OperationContext, change: BulkChange, root: Id): Promise<number> {
  const { db, removalsInProgress } = ctx.store;
  removalsInProgress.add(String(root));
  try {
    const found = await roots(db).findOne({ _id: root });
    if (found === null) return 0;
    return await withHeartbeat(db.collection(journalName), root, () => runPieces(ctx, change, found));
  } catch (error) {
    // what has become invalid since, such as a parent that was deleted, cannot be completed
    if (isInvalid(error)) await voidChange(db, root);
    throw error;
  } finally {
    removalsInProgress.delete(String(root));
  }
}

async function runPieces(
  ctx: OperationContext,
  change: BulkChange,
  { _id: root, filter }: ChangeRoot,
): Promise<number> {
  const { db } = ctx.store;
  let changed = 0;
  for (;;) {
    const piece = await pieces(db).findOne({ root }, { sort: { _id: 1 } });
    if (piece === null) break;
    changed += await runPiece(ctx, change, piece, filter);
  }
  await roots(db).deleteOne({ _id: root });
  return changed;
}

/** Changes the objects of one piece that still match, once: the piece is deleted in the same transaction. */
async function runPiece(
  ctx: OperationContext,
  change: BulkChange,
  { _id, nodes }: ChangePiece,
  filter: object,
): Promise<number> {
  const { db } = ctx.store;
  const collection = db.collection(change.resource.plural);
  const { removals, changed } = await withTransaction(collection, max_attempts, async (session) => {
    const { deletedCount } = await pieces(db).deleteOne({ _id }, { session });
    const query = { $and: [{ _id: { $in: nodes.map((node) => node._id) } }, filter] };
    const found = await collection
      .find(query, { session, projection: buildNodeProjection(change.resource.plural), hint: { _id: 1 } })
      .toArray();
    if (deletedCount === 0 || found.length === 0) return { removals: [], changed: 0 };
    const remaining = found.map((document) => describeNode(change.resource.plural, document));
    return { removals: await applyChange(ctx, change, remaining, session), changed: remaining.length };
  });
  await finishChange(ctx, change, removals);
  return changed;
}

/**
 * Completes changes whose instance shows no sign of life any more. Runs before the service is ready, then periodically.
 * @param now_ms epoch milliseconds
 */
export async function finishChanges(store: Store, now_ms: number): Promise<void> {
  const { db, removalsInProgress } = store;
  const journal = db.collection(journalName);
  const found = await roots(db)
    .find({ plural: { $exists: true } })
    .toArray();
  for (const root of found) {
    if (removalsInProgress.has(String(root._id)) || !(await takeOver(journal, root._id))) continue;
    const { account, user, request_id, now } = root;
    await resumeChange({ store, account, user, request_id, now }, root);
  }
  const isLeftover = { _id: { $lt: db.buildMinId(now_ms - leftover_ms) }, root: { $nin: found.map(({ _id }) => _id) } };
  await pieces(db).deleteMany({ plural: { $exists: false }, ...isLeftover });
}

async function resumeChange(ctx: OperationContext, root: ChangeRoot): Promise<void> {
  const resource = resources.find(({ plural }) => plural === root.plural);
  if (resource === undefined) throw new Error(`a bulk change of unknown ${root.plural}`);
  const values = root.values === undefined ? undefined : (JSON.parse(root.values) as Values);
  try {
    const references = await findReferences(ctx, resource, values ?? {});
    await runChange(ctx, { resource, values, references }, root._id);
  } catch (error) {
    if (!isInvalid(error)) throw error;
    await voidChange(ctx.store.db, root._id);
  }
}

function isInvalid(error: unknown): boolean {
  return error instanceof AppError && error.failure === 'invalid';
}

async function voidChange(db: Database, root: Id): Promise<void> {
  await roots(db).deleteOne({ _id: root });
  await pieces(db).deleteMany({ root });
}
