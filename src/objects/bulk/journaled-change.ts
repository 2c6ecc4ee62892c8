import type { Id } from '../../db/ids.js';
import { findMany } from '../../db/raw-find.js';
import { withTransaction } from '../../db/transaction.js';
import { AppError } from '../../errors.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { getId } from '../../serialize/bson.js';
import type { OperationContext, Store } from '../context.js';
import { readBatches } from '../select/read.js';
import { selectMatching } from '../select/related-devices.js';
import type { ObjectSelection } from '../select/selection.js';
import { resumeJournaled, runJournaled } from '../tree/journal.js';
import type { BulkAction } from './action.js';
import {
  type ChangePiece,
  type ChangeRun,
  deleteLeftovers,
  journalOf,
  openRoot,
  piecesOf,
  restoreRun,
  rootsOf,
  withdrawRoot,
} from './bulk-journal.js';
import {
  applyChange,
  assertConfirmed,
  assertValid,
  type BulkChange,
  finishChange,
  hasStoredDependency,
  verifyReferences,
} from './change.js';

/** Objects of one piece: a short transaction, which streams of its devices seldom conflict with. */
const max_ids = 250;
/** Time limit of reading all matches. */
const scan_limit_ms = 60_000;
/** Time in which the transaction of a piece is repeated after conflicts. */
const piece_limit_ms = 60_000;

/**
 * Changes the objects that match at one moment, in pieces and in order of the identifier (reference/bulk.md#concurrency). An
 * object that no longer matches when its piece is reached is left alone. @returns the number of changed objects
 * @throws AppError invalid (4003), or conflict (4005) if they are not `confirmed`; then nothing is changed
 */
export async function applyInPieces(
  ctx: OperationContext,
  change: BulkChange,
  selection: ObjectSelection,
  confirmed: number,
): Promise<number> {
  const { db } = ctx.store;
  const { _id } = await openRoot(ctx, change, selection);
  try {
    return await runJournaled(ctx.store, journalOf(db), _id, async () => {
      await savePieces(ctx, change, selection, _id, confirmed);
      const { matchedCount } = await rootsOf(db).updateOne({ _id }, { $set: { isConfirmed: true } });
      // another instance has taken this one for dead
      if (matchedCount === 0) throw new AppError('database');
      return runPieces({ ...selection, ctx, change }, _id);
    });
  } catch (error) {
    await withdrawRoot(db, _id);
    throw error;
  }
}

/** Writes the pieces of the objects that match in one snapshot. @throws AppError conflict (4005), invalid (4003) */
async function savePieces(
  ctx: OperationContext,
  change: BulkChange,
  selection: ObjectSelection,
  root: Id,
  confirmed: number,
): Promise<void> {
  const { db } = ctx.store;
  const { action } = change;
  const isChecked = hasStoredDependency(change);
  const batches = readBatches(ctx, selection, {
    ...(!isChecked && { projection: { _id: 1 } }),
    sort: { id_developer: 1 },
    readConcern: { level: 'snapshot' },
    maxTimeMS: scan_limit_ms,
  });
  let matched = 0;
  for await (const documents of batches) {
    matched += documents.length;
    if (matched > confirmed) continue;
    if (isChecked) await assertValid(ctx, change, documents);
    const ids = documents.map((document) => getId(document, '_id'));
    await action?.check(ctx, ids, change.values ?? {});
    const pieces = [...splitIntoBatches(ids, max_ids)].map((piece) => ({ _id: db.newId(), root, ids: piece }));
    await piecesOf(db).insertMany(pieces);
  }
  assertConfirmed(confirmed, matched);
}

/** Carries out what is left of a confirmed change. @returns the number of objects changed */
async function runPieces(run: ChangeRun, root: Id): Promise<number> {
  const { ctx, change } = run;
  const { db } = ctx.store;
  let changed = 0;
  for (;;) {
    const piece = await piecesOf(db).findOne({ root }, { sort: { _id: 1 } });
    if (piece === null) break;
    changed += await runPiece(run, piece);
  }
  await verifyReferences(ctx, change);
  await rootsOf(db).deleteOne({ _id: root });
  return changed;
}

/** Changes the objects of one piece, once: the piece is deleted in the same transaction. */
async function runPiece(run: ChangeRun, { _id, ids }: ChangePiece): Promise<number> {
  const { ctx, change, unselected, related = [] } = run;
  const { db } = ctx.store;
  const matching = await selectMatching(ctx, related, ids);
  const matches = { $and: [{ _id: { $in: matching } }, unselected] };
  const applied = await withTransaction(db.collection(change.resource.plural), piece_limit_ms, async (session) => {
    const { deletedCount } = await piecesOf(db).deleteOne({ _id }, { session });
    if (deletedCount === 0) return { changed: 0 };
    return applyChange(ctx, change, { filter: matches, hint: { _id: 1 } }, { session, skipsInvalid: true });
  });
  await finishChange(ctx, change, applied);
  return applied.changed;
}

/**
 * Completes confirmed changes whose instance shows no sign of life any more, and withdraws others. Runs before the service is
 * ready, then periodically. @param now_ms epoch milliseconds
 */
export async function finishChanges(store: Store, actions: readonly BulkAction[], now_ms: number): Promise<void> {
  const { db } = store;
  const roots = await findMany(
    rootsOf(db),
    { plural: { $exists: true } },
    { projection: { _id: 1 }, sort: { _id: 1 } },
  );
  const unfinished = roots.map(({ _id }) => _id);
  await resumeJournaled(store, journalOf(db), unfinished, async (_id) => {
    await withdrawRoot(db, _id);
    const root = await rootsOf(db).findOne({ _id });
    if (root !== null) await runPieces(await restoreRun(store, root, actions), _id);
  });
  await deleteLeftovers(db, now_ms);
}
