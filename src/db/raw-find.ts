import type { mongo } from 'mongoose';
import type { Collection, StoredDocument } from './database.js';
import { retryOnce } from './driver-errors.js';

type Bson = Uint8Array;

/** Batches of stored documents as BSON bytes of the database's replies. */
export interface RawCursor {
  batches: AsyncGenerator<readonly Bson[]>;
  /** The last batch has been read. */
  readonly exhausted: boolean;
}

/** Options of the `find` command. */
export interface RawQuery {
  filter: object;
  projection?: object;
  hint?: mongo.Hint;
  sort?: Readonly<Record<string, 1 | -1>>;
  skip?: number;
  limit?: number;
  maxTimeMS: number;
}

const max_reply_documents = 100_000;

/** Finds all matching documents, which must fit into one reply (16 MiB), without the driver's cursor. */
export async function findAll(collection: Collection, query: RawQuery): Promise<StoredDocument[]> {
  const { db, collectionName } = collection;
  const find = { find: collectionName, ...query, batchSize: max_reply_documents, singleBatch: true };
  const { cursor } = await retryOnce(() => db.command(find));
  return cursor.firstBatch;
}

/** Documents of one reply; parsing more would block the event loop for too long. */
const batch_size = 200;

interface Reply {
  cursor: { id: mongo.Long; firstBatch?: Bson[]; nextBatch?: Bson[] };
}

/**
 * Runs `find` without the driver's cursor, which parses every document before it returns the bytes
 * (docs/decisions.md#27-raw-find-commands-instead-of-driver-cursors).
 */
export function findRaw(collection: Collection, query: RawQuery): RawCursor {
  const { db, collectionName } = collection;
  let exhausted = false;

  async function* batches(): AsyncGenerator<readonly Bson[]> {
    const session = db.client.startSession({ causalConsistency: false });
    const runCommand = (command: object) =>
      db.command(command, {
        session,
        promoteLongs: false,
        fieldsAsRaw: { firstBatch: true, nextBatch: true },
      }) as unknown as Promise<Reply>;
    // a batch of exactly `limit` documents would leave the cursor open
    const { limit = batch_size } = query;
    const find = { find: collectionName, ...query, batchSize: Math.min(limit + 1, batch_size) };
    let id: mongo.Long | undefined;
    try {
      const first = await retryOnce(() => runCommand(find));
      for (
        let { cursor } = first;
        ;
        { cursor } = await runCommand({ getMore: cursor.id, collection: collectionName, batchSize: batch_size })
      ) {
        id = cursor.id;
        exhausted = id.isZero();
        const documents = cursor.firstBatch ?? cursor.nextBatch ?? [];
        if (documents.length > 0) yield documents;
        if (exhausted) return;
      }
    } finally {
      if (id !== undefined && !exhausted)
        await runCommand({ killCursors: collectionName, cursors: [id] }).catch(() => undefined);
      await session.endSession();
    }
  }
  return {
    batches: batches(),
    get exhausted() {
      return exhausted;
    },
  };
}
