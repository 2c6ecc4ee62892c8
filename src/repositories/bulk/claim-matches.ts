import mongoose, { type mongo } from 'mongoose';
import type { Database } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import type { QueryPlan } from '../../db/query-plan.js';
import { findRaw, type RawQuery } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import { findElement, getString, toBuffer } from '../../serialize/bson.js';
import type { ClaimedObject } from '../claims.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import type { NodeRef } from '../removed-nodes.js';
import { buildClaimable, type ChangePiece, type ChangeRoot, journalOf, piecesOf, rootsOf } from './bulk-journal.js';
import { type BulkChange, hasStoredDependency, planUpdates } from './change.js';

/** Objects of one piece: a short transaction, which streams of its devices seldom get ahead of. */
const max_nodes = 250;
/** Pieces claimed at a time, as each command waits for the journal. */
const max_concurrent_claims = 8;
/** Time limit of reading all matches. */
const scan_limit_ms = 60_000;

/** The objects that match have changed while they were claimed: the change begins again. */
export class ClaimLost extends Error {
  constructor(
    /** An object of an older change, which has to be decided first. */
    readonly blocked?: ClaimedObject,
  ) {
    super('the objects that match have changed');
  }
}

/**
 * Claims the objects that match and verifies in one snapshot that they are exactly `confirmed` and all claimed. From a claim
 * on, no other request changes the object, so the moment of the snapshot is that of the whole change.
 * @throws AppError conflict (4005) with the number of matches, invalid (4003) @throws ClaimLost
 */
export async function claimMatches(
  ctx: OperationContext,
  change: BulkChange,
  query: QueryPlan,
  root: ChangeRoot,
  confirmed: number,
): Promise<void> {
  const { db } = ctx.store;
  await savePieces(ctx, change, query, root._id, confirmed);
  const claims = await claimPieces(ctx, root);
  await verifyClaims(ctx, change, query, { claims, confirmed, atClusterTime: await readMajorityTime(db, root._id) });
}

/** @returns the ids of the pieces @throws ClaimLost */
async function claimPieces(ctx: OperationContext, root: ChangeRoot): Promise<ReadonlySet<string>> {
  const claims = new Set<string>();
  let group: ChangePiece[] = [];
  const claimGroup = async () => {
    const outcomes = await Promise.allSettled(group.map((piece) => claimPiece(ctx, root, piece)));
    group = [];
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  };
  for await (const piece of piecesOf(ctx.store.db).find({ root: root._id })) {
    claims.add(piece._id.toString('hex'));
    if (group.push(piece) === max_concurrent_claims) await claimGroup();
  }
  await claimGroup();
  return claims;
}

/** @throws AppError conflict (4005) if the matches of one moment are not `confirmed`, so that nothing is claimed in vain */
async function savePieces(
  { store: { db } }: OperationContext,
  { resource }: BulkChange,
  { filter, hint }: QueryPlan,
  root: Id,
  confirmed: number,
): Promise<void> {
  const query = { filter, ...(hint && { hint }), projection: { id_developer: 1 } };
  let matched = 0;
  for await (const documents of readSnapshot(db, resource.plural, query)) {
    matched += documents.length;
    if (matched > confirmed) continue;
    const found = documents.map((document) => ({
      _id: readId(document, '_id') as Id,
      id: getString(document, 'id_developer') ?? '',
    }));
    const entries: ChangePiece[] = [];
    for (let from = 0; from < found.length; from += max_nodes)
      entries.push({ _id: db.newId(), root, nodes: found.slice(from, from + max_nodes) satisfies NodeRef[] });
    await piecesOf(db).insertMany(entries as mongo.OptionalUnlessRequiredId<ChangePiece>[]);
  }
  if (matched !== confirmed) throw new AppError('conflict', { matched });
}

function readSnapshot(db: Database, plural: string, query: RawQuery): AsyncGenerator<readonly Bson[]> {
  const snapshot = { readConcern: { level: 'snapshot' }, maxTimeMS: scan_limit_ms } as const;
  return findRaw(db.collection(plural), { ...snapshot, ...query }).batches;
}

/** @throws ClaimLost if an object does not exist any more, or if an older change has claimed it and is undecided */
async function claimPiece({ store }: OperationContext, root: ChangeRoot, piece: ChangePiece): Promise<void> {
  const { db } = store;
  const collection = db.collection(root.plural);
  const _id = { $in: piece.nodes.map((node) => node._id) };
  for (;;) {
    const { matchedCount } = await retryOnce(() =>
      collection.updateMany({ _id, ...buildClaimable(piece._id) }, { $set: { claim: piece._id } }),
    );
    if (matchedCount === piece.nodes.length) return;
    const blocking = { _id, claim: { $nin: [null, piece._id] } };
    const found = await collection.findOne(blocking, { projection: { claim: 1 } });
    if (found === null) throw new ClaimLost();
    const blocked = { _id: found._id, claim: found.claim as Id };
    // of two undecided changes the younger one gives way, so that they do not wait for each other
    if (await isOlderUndecided(db, blocked.claim, root._id)) throw new ClaimLost(blocked);
    await store.settleClaim(store, root.plural, blocked);
  }
}

async function isOlderUndecided(db: Database, claim: Id, root: Id): Promise<boolean> {
  const piece = await piecesOf(db).findOne({ _id: claim }, { projection: { root: 1 } });
  const other = piece && (await rootsOf(db).findOne({ _id: piece.root, state: 'claiming' }));
  return other !== null && other._id.toString('hex') < root.toString('hex');
}

/** @returns the time of a write that a majority has acknowledged, which includes all claims before */
async function readMajorityTime(db: Database, root: Id): Promise<unknown> {
  const session = journalOf(db).db.client.startSession();
  try {
    await journalOf(db).updateOne({ _id: root }, [{ $set: { beat_at: '$$NOW' } }], { session });
    return session.operationTime;
  } finally {
    await session.endSession();
  }
}

async function verifyClaims(
  ctx: OperationContext,
  change: BulkChange,
  { filter, hint }: QueryPlan,
  { claims, confirmed, atClusterTime }: { claims: ReadonlySet<string>; confirmed: number; atClusterTime: unknown },
): Promise<void> {
  const { resource, values } = change;
  const isChecked = values !== undefined && hasStoredDependency(resource, values);
  const query: RawQuery = {
    filter,
    ...(hint && { hint }),
    ...(!isChecked && { projection: { claim: 1 } }),
    readConcern: { level: 'snapshot', atClusterTime },
  };
  let matched = 0;
  let claimed = 0;
  for await (const documents of readSnapshot(ctx.store.db, resource.plural, query)) {
    matched += documents.length;
    for (const document of documents) if (claims.has(readId(document, 'claim')?.toString('hex') ?? '')) claimed++;
    if (isChecked && matched <= confirmed) await planUpdates(ctx, change, documents);
  }
  if (matched !== confirmed) throw new AppError('conflict', { matched });
  if (claimed !== confirmed) throw new ClaimLost();
}

/** Reads an internal id of a stored document. */
function readId(document: Bson, key: string): Id | undefined {
  const source = toBuffer(document);
  const found = findElement(source, 0, key);
  // length and subtype precede the bytes of a binary value
  return found && new mongoose.mongo.UUID(Buffer.from(source.subarray(found.start + 5, found.end)));
}
