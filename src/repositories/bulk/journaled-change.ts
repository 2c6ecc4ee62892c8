import { setTimeout as sleep } from 'node:timers/promises';
import { isTimeout } from '../../db/driver-errors.js';
import type { QueryPlan } from '../../db/query-plan.js';
import { AppError } from '../../errors.js';
import type { ClaimedObject } from '../claims.js';
import type { OperationContext, Store } from '../context.js';
import { isSilent, sortWork, takeOver, withHeartbeat } from '../journal.js';
import { buildNodeProjection, describeNode } from '../removed-nodes.js';
import {
  type ChangePiece,
  type ChangeRoot,
  confirmRoot,
  deleteLeftovers,
  journalOf,
  openRoot,
  piecesOf,
  restoreChange,
  rootsOf,
  withdrawRoot,
} from './bulk-journal.js';
import { applyChange, type BulkChange, finishChange, verifyReferences } from './change.js';
import { ClaimLost, claimMatches } from './claim-matches.js';
import { withTransaction } from './transaction.js';

/** Attempts to claim all objects while others create and delete some of them. */
const max_claim_attempts = 10;
/** Attempts of the transaction of a piece. */
const max_attempts = 100;
const poll_ms = 25;

/**
 * Changes exactly the objects that match at one moment, in pieces (reference/bulk.md#concurrency).
 * @throws AppError invalid (4003), or conflict (4005) if they are not `confirmed`; then nothing is changed
 */
export async function applyInPieces(
  ctx: OperationContext,
  change: BulkChange,
  query: QueryPlan,
  confirmed: number,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await claimAndChange(ctx, change, query, confirmed);
    } catch (error) {
      if (!(error instanceof ClaimLost)) throw error;
      if (attempt === max_claim_attempts) throw new AppError('conflict', { matched: confirmed });
      const { store } = ctx;
      if (error.blocked) await store.settleClaim(store, change.resource.plural, error.blocked);
    }
  }
}

async function claimAndChange(
  ctx: OperationContext,
  change: BulkChange,
  query: QueryPlan,
  confirmed: number,
): Promise<void> {
  const { db, removalsInProgress, abandonedRemovals } = ctx.store;
  const root = await openRoot(ctx, change);
  removalsInProgress.add(String(root._id));
  try {
    await withHeartbeat(journalOf(db), root._id, async () => {
      await claimMatches(ctx, change, query, root, confirmed);
      await confirmRoot(db, root._id);
      await runPieces(ctx, change, root);
    });
  } catch (error) {
    if (!isTimeout(error)) abandonedRemovals.add(String(root._id));
    // without effect on a change that is confirmed
    await withdrawRoot(db, root);
    throw error;
  } finally {
    removalsInProgress.delete(String(root._id));
  }
}

/** Carries out what is left of a confirmed change. */
async function runPieces(ctx: OperationContext, change: BulkChange, { _id: root }: ChangeRoot): Promise<void> {
  const { db } = ctx.store;
  for (;;) {
    const piece = await piecesOf(db).findOne({ root }, { sort: { _id: 1 } });
    if (piece === null) break;
    await runPiece(ctx, change, piece);
  }
  await verifyReferences(ctx, change);
  await rootsOf(db).deleteOne({ _id: root });
}

/** Changes the objects of one piece, once: the piece is deleted in the same transaction. */
async function runPiece(ctx: OperationContext, change: BulkChange, { _id, nodes }: ChangePiece): Promise<void> {
  const { db } = ctx.store;
  const { plural } = change.resource;
  const collection = db.collection(plural);
  const removals = await withTransaction(collection, max_attempts, async (session) => {
    const { deletedCount } = await piecesOf(db).deleteOne({ _id }, { session });
    if (deletedCount === 0) return [];
    const claimed = { _id: { $in: nodes.map((node) => node._id) }, claim: _id };
    const options = { session, projection: buildNodeProjection(plural), hint: { _id: 1 } };
    const found = await collection.find(claimed, options).toArray();
    const described = found.map((document) => describeNode(plural, document));
    return applyChange(ctx, change, described, session);
  });
  await finishChange(ctx, change, removals);
}

/**
 * Makes a claimed object free for others: carries out the piece of a confirmed change, releases the object from one that is
 * void, and waits for an undecided one, unless its instance shows no sign of life.
 */
export async function settleClaim(store: Store, plural: string, { _id, claim }: ClaimedObject): Promise<void> {
  const { db } = store;
  for (;;) {
    const piece = await piecesOf(db).findOne({ _id: claim });
    const root = piece && (await rootsOf(db).findOne({ _id: piece.root }));
    if (root === null || root.state === 'void') {
      // a root entry is written before its claims, and deleted after the last of them
      await db.collection(plural).updateOne({ _id, claim }, { $unset: { claim: 1 } });
      return;
    }
    if (root.state === 'confirmed') {
      const { ctx, change } = restoreChange(store, root);
      await runPiece(ctx, change, piece as ChangePiece);
      return;
    }
    if (await isSilent(journalOf(db), root._id)) await withdrawRoot(db, root);
    else await sleep(poll_ms);
  }
}

/**
 * Completes confirmed changes whose instance shows no sign of life any more, and releases the objects of others. Runs before
 * the service is ready, then periodically. @param now_ms epoch milliseconds
 */
export async function finishChanges(store: Store, now_ms: number): Promise<void> {
  const { db, removalsInProgress, abandonedRemovals } = store;
  const abandoned = new Set(abandonedRemovals);
  const roots = await rootsOf(db)
    .find({ plural: { $exists: true } }, { projection: { _id: 1 }, sort: { _id: 1 } })
    .toArray();
  const unfinished = roots.map(({ _id }) => _id);
  for (const _id of sortWork(unfinished, removalsInProgress, abandoned)) {
    if (!(await takeOver(journalOf(db), _id, abandoned.has(String(_id))))) continue;
    await db.endIdleTransactions();
    const root = await rootsOf(db).findOne({ _id });
    if (root === null) continue;
    await withdrawRoot(db, root);
    if (root.state === 'confirmed') await withHeartbeat(journalOf(db), _id, () => resumeChange(store, root));
  }
  await deleteLeftovers(db, now_ms);
}

async function resumeChange(store: Store, root: ChangeRoot): Promise<void> {
  const { ctx, change } = restoreChange(store, root);
  await runPieces(ctx, change, root);
}
