import { read_limit_ms, type StoredDocument } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { AppError } from '../errors.js';
import type { OperationContext } from './context.js';

/**
 * Inserts a document below a parent: insert, verify the parent, compensate. If the parent is deleted at the same time, so
 * is the document. @throws AppError notFound (4041) without the parent; a duplicate breaks a unique index (4003)
 */
export async function insertUnderParent(
  { store: { db } }: OperationContext,
  plural: string,
  document: StoredDocument & { parent: Id },
  parentPlural: string,
): Promise<void> {
  await db.collection(plural).insertOne(document, { forceServerObjectId: true });
  // compares internal ids: another object may have the identifier by now
  const parent = await db
    .collection(parentPlural)
    .findOne({ _id: document.parent }, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
  if (parent !== null) return;
  await db.collection(plural).deleteOne({ _id: document._id });
  throw new AppError('notFound');
}
