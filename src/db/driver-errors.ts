import mongoose from 'mongoose';
import { AppError, type FieldErrors } from '../errors.js';

const { BSON, MongoError, MongoNetworkError, MongoServerError } = mongoose.mongo;

/**
 * Turns what the driver throws into a numbered failure: a broken uniqueness into 4003 with the field that is taken,
 * everything else into 5031. @returns undefined for what does not come from the database
 */
export function toAppError(error: unknown): AppError | undefined {
  if (error instanceof MongoServerError && error.code === 11000) {
    // a command that asks for raw documents gets its error details raw too
    const { keyPattern = {} } = error;
    const keys = keyPattern instanceof Uint8Array ? BSON.deserialize(keyPattern) : keyPattern;
    const path = Object.keys(keys).at(-1) ?? 'name';
    return new AppError('invalid', takenErrors[path] ?? { [path]: takenMessage });
  }
  if (error instanceof MongoError || error instanceof mongoose.Error)
    return new AppError('database', {}, { cause: error });
  return undefined;
}

export const takenMessage = 'is taken';

/** What clients are told where the path that is taken is none of theirs. */
const takenErrors: Readonly<Record<string, FieldErrors>> = {
  id_developer: { name: 'makes an identifier that is taken' },
  parent: { username: 'cannot be given: the device has credentials already' },
};

/** True for a violation of a unique index (E11000). */
export function isDuplicate(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === 11000;
}

/** What a server answers that is no longer, or not yet, the one to ask. */
const retryableCodes: ReadonlySet<unknown> = new Set([91, 189, 10107, 11600, 11602, 13435, 13436]);

function isRetryable(error: unknown): boolean {
  return error instanceof MongoNetworkError || (error instanceof MongoServerError && retryableCodes.has(error.code));
}

/**
 * Sends a command again if it failed only because the database was changing hands, as the driver does with commands that
 * change one document: for those that do no harm twice. @throws what the second time throws
 */
export function retryOnce<Answer>(send: () => Promise<Answer>): Promise<Answer> {
  return send().catch((error: unknown) => {
    if (!isRetryable(error)) throw error;
    return send();
  });
}
