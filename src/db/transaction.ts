import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import type { Collection } from './database.js';

const { MongoError } = mongoose.mongo;

const transactionOptions = {
  readConcern: { level: 'snapshot' },
  writeConcern: { w: 'majority', journal: true },
} as const;

/** Another write has changed a document of the transaction, or the primary has changed; nothing was written. */
function isConflict(error: unknown): boolean {
  return error instanceof MongoError && error.hasErrorLabel('TransientTransactionError');
}

/**
 * Runs `work` in a transaction, again if another write got ahead of it. @param limit_ms after this time a conflict is thrown
 * @throws the error of `work`, after which nothing is written
 */
export async function withTransaction<T>(
  collection: Collection,
  limit_ms: number,
  work: (session: mongo.ClientSession) => Promise<T>,
): Promise<T> {
  const session = collection.db.client.startSession();
  const give_up_at = performance.now() + limit_ms;
  try {
    for (let attempt = 1; ; attempt++) {
      session.startTransaction(transactionOptions);
      try {
        const result = await work(session);
        await commit(session);
        return result;
      } catch (error) {
        if (session.inTransaction()) await session.abortTransaction().catch(() => undefined);
        if (!isConflict(error) || performance.now() >= give_up_at) throw error;
        await sleep(Math.random() * 10 * Math.min(attempt, 20));
      }
    }
  } finally {
    await session.endSession();
  }
}

/** Commits; asks again while the outcome is unknown, which does not commit twice. */
async function commit(session: mongo.ClientSession): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await session.commitTransaction();
      return;
    } catch (error) {
      const isUnknown = error instanceof MongoError && error.hasErrorLabel('UnknownTransactionCommitResult');
      if (!isUnknown || attempt >= 3) throw error;
    }
  }
}
