import type { mongo } from 'mongoose';
import type { Collection, StoredDocument } from './database.js';
import { persistently } from './driver-errors.js';

/** A stored document as BSON bytes, as `printer.ts` takes it. */
type Bson = Uint8Array;

/** A page of stored documents, as they lie in the database's reply. */
export interface RawCursor {
  batches: AsyncGenerator<readonly Bson[]>;
  /** Whether the database has no more than what has been read. */
  readonly exhausted: boolean;
}

export interface RawQuery {
  filter: object;
  projection?: object;
  hint?: mongo.Hint;
  sort?: Readonly<Record<string, 1 | -1>>;
  skip?: number;
  limit?: number;
  maxTimeMS: number;
}

const most_whole = 100_000;

/** All that match, which must fit into one reply (16 MiB), without the driver's cursor. */
export async function findWhole(collection: Collection, query: RawQuery): Promise<StoredDocument[]> {
  const { db, collectionName } = collection;
  const find = { find: collectionName, ...query, batchSize: most_whole, singleBatch: true };
  const { cursor } = await persistently(() => db.command(find));
  return cursor.firstBatch;
}

/** Documents of one reply: taking many apart keeps everybody else waiting. */
const most_at_once = 200;

interface Reply {
  cursor: { id: mongo.Long; firstBatch?: Bson[]; nextBatch?: Bson[] };
}

/** A `find` without the driver's cursor, which takes every document apart before it hands out its bytes. */
export function findRaw(collection: Collection, query: RawQuery): RawCursor {
  const { db, collectionName } = collection;
  let exhausted = false;

  async function* batches(): AsyncGenerator<readonly Bson[]> {
    const session = db.client.startSession({ causalConsistency: false });
    const ask = (command: object) =>
      db.command(command, {
        session,
        promoteLongs: false,
        fieldsAsRaw: { firstBatch: true, nextBatch: true },
      }) as unknown as Promise<Reply>;
    // with a batch of the very limit the database would keep the cursor open
    const { limit = most_at_once } = query;
    const find = { find: collectionName, ...query, batchSize: Math.min(limit + 1, most_at_once) };
    let id: mongo.Long | undefined;
    try {
      const first = await persistently(() => ask(find));
      for (
        let { cursor } = first;
        ;
        { cursor } = await ask({ getMore: cursor.id, collection: collectionName, batchSize: most_at_once })
      ) {
        id = cursor.id;
        exhausted = id.isZero();
        const documents = cursor.firstBatch ?? cursor.nextBatch ?? [];
        if (documents.length > 0) yield documents;
        if (exhausted) return;
      }
    } finally {
      if (id !== undefined && !exhausted)
        await ask({ killCursors: collectionName, cursors: [id] }).catch(() => undefined);
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
