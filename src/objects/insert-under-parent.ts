import { read_limit_ms, type StoredDocument } from '../db/database.js';
import type { Id } from '../db/ids.js';
import type { OperationContext } from './context.js';
import { removeLeaf } from './removed-nodes.js';

/**
 * Inserts a document below a parent that was found: insert, verify the parent, compensate. If the parent was deleted at the
 * same time, the document is deleted with it, and the insert has succeeded before. @throws the driver's error for a duplicate
 */
export async function insertUnderParent(
  ctx: OperationContext,
  plural: string,
  document: StoredDocument & { parent: Id },
  parentPlural: string,
): Promise<void> {
  const { db } = ctx.store;
  await db.collection(plural).insertOne(document, { forceServerObjectId: true });
  // compares internal ids: another object may have the identifier by now
  const parent = await db
    .collection(parentPlural)
    .findOne({ _id: document.parent }, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
  if (parent === null) await removeLeaf(ctx, plural, document);
}
