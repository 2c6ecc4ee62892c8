import type { StoredDocument } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { hasMatch } from '../db/raw-find.js';
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
  if (!(await hasMatch(db.collection(parentPlural), { _id: document.parent }))) await removeLeaf(ctx, plural, document);
}
