import mongoose, { type mongo } from 'mongoose';
import { AppError, type FieldErrors } from '../errors.js';

const { MongoBulkWriteError, MongoError, MongoNetworkError, MongoNetworkTimeoutError, MongoServerError } =
  mongoose.mongo;

/**
 * Converts any error to that of an answer: of the driver a duplicate key to 4003 with the field that is taken, everything
 * else to 5031, and what is unforeseen to 5032.
 */
export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof MongoServerError && error.code === 11000) {
    const path = Object.keys(error.keyPattern ?? {}).at(-1) ?? 'name';
    return new AppError('invalid', takenErrors[path] ?? { [path]: takenMessage });
  }
  if (error instanceof MongoError || error instanceof mongoose.Error)
    return new AppError('database', {}, { cause: error });
  return new AppError('exception', { message: 'the service failed; its log has the request id' }, { cause: error });
}

export const takenMessage = 'is taken';
export const takenIdentifier = 'makes an identifier that is taken';

/** Errors for unique keys whose last path is not a field of the body. */
const takenErrors: Readonly<Record<string, FieldErrors>> = {
  id_developer: { name: takenIdentifier },
  parent: { username: 'cannot be given: the device has credentials already' },
};

/** Creates the check of errors of the server that have one of these codes. */
export function hasCode(...codes: readonly number[]): (error: unknown) => boolean {
  return (error) => error instanceof MongoServerError && codes.includes(Number(error.code));
}

/** True for a violation of a unique index (E11000). */
export const isDuplicate = hasCode(11000);
/** True for the creation of a collection that exists with other options. */
export const isExistingNamespace = hasCode(48);
/** True for a command on a collection that does not exist. */
export const isMissingNamespace = hasCode(26);
/** True if a transaction of others had changed the same document. */
export const isWriteConflict = hasCode(112);
/** True for a read at a time that the database does not keep any more: SnapshotTooOld, SnapshotUnavailable. */
export const isSnapshotLost = hasCode(239, 246);
/** True for a primary that is stepping down or not yet elected; safe to retry. */
const hasNoPrimary = hasCode(91, 189, 10107, 11600, 11602, 13435, 13436);
const hasTimedOut = hasCode(50);

/** True if documents of an insert exist already, and nothing else failed. */
export function hasOnlyDuplicates(error: unknown): error is mongo.MongoBulkWriteError {
  if (!(error instanceof MongoBulkWriteError) || error.result.getWriteConcernError() !== undefined) return false;
  const errors = [error.writeErrors].flat();
  return errors.length > 0 && errors.every(({ code }) => code === 11000);
}

/**
 * Finds the documents of an insert that were rejected while all others are durable. @throws `error` unless the counts prove
 * that: the driver reports network failures with the same class
 */
export function findRejected<T>(documents: readonly T[], error: unknown): T[] {
  if (!(error instanceof MongoBulkWriteError) || error.result.getWriteConcernError() !== undefined) throw error;
  const places = failedPlacesOf(error);
  if (places.size === 0 || places.size + error.insertedCount !== documents.length) throw error;
  return documents.filter((_document, index) => places.has(index));
}

/** Finds the places of the writes of a bulk write that failed. */
export function failedPlacesOf({ writeErrors }: mongo.MongoBulkWriteError): ReadonlySet<number> {
  return new Set([writeErrors].flat().map(({ index }) => index));
}

/** Reports whether a command took longer than its limit; it may go on in the server. */
export function isTimeout(error: unknown): boolean {
  return error instanceof MongoNetworkTimeoutError || hasTimedOut(error);
}

/**
 * Retries an idempotent command once if the primary changed. The driver does so by itself only for writes of single
 * documents. @throws the error of the second attempt
 */
export function retryOnce<Answer>(send: () => Promise<Answer>): Promise<Answer> {
  return send().catch((error: unknown) => {
    if (!(error instanceof MongoNetworkError || hasNoPrimary(error))) throw error;
    return send();
  });
}
