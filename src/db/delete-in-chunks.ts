import type { mongo } from 'mongoose';
import { type Collection, read_limit_ms, type StoredDocument } from './database.js';
import { retryOnce } from './driver-errors.js';

const chunk_size = 5000;

interface ChunkOptions extends Pick<mongo.FindOptions, 'projection' | 'sort' | 'skip' | 'hint' | 'maxTimeMS'> {
  /** Documents to delete at most. */
  limit?: number;
  /** Runs before each chunk is deleted. */
  beforeDelete?(documents: readonly StoredDocument[]): Promise<void>;
}

/** Deletes matching documents by their ids, so that no command outlasts its time limit. @returns the number of those found */
export async function deleteInChunks(
  collection: Pick<Collection, 'find' | 'deleteMany'>,
  filter: object,
  { limit = Number.POSITIVE_INFINITY, beforeDelete, ...options }: ChunkOptions = {},
): Promise<number> {
  let count = 0;
  for (let isFull = true; isFull && count < limit; ) {
    const query = { projection: { _id: 1 }, maxTimeMS: read_limit_ms, ...options };
    const wanted = Math.min(limit - count, chunk_size);
    const chunk = await collection.find(filter, { ...query, limit: wanted }).toArray();
    isFull = chunk.length === wanted;
    count += chunk.length;
    if (chunk.length === 0) break;
    await beforeDelete?.(chunk);
    // a document that was replaced since then is kept
    const found = { ...filter, _id: { $in: chunk.map((document) => document._id) } };
    await retryOnce(() => collection.deleteMany(found, { hint: { _id: 1 } }));
  }
  return count;
}
