import mongoose from 'mongoose';
import { AppError } from '../errors.js';

const { MongoError, MongoServerError } = mongoose.mongo;

/**
 * Turns what the driver throws into a numbered failure: a broken uniqueness into 4003 with the field that is taken,
 * everything else into 5031. @returns undefined for what does not come from the database
 */
export function databaseFailure(error: unknown): AppError | undefined {
  if (error instanceof MongoServerError && error.code === 11000) {
    const path = Object.keys((error.keyPattern as object | undefined) ?? {}).at(-1) ?? 'name';
    return new AppError('invalid', path === 'id_developer' ? { name: identifierTaken } : { [path]: taken });
  }
  if (error instanceof MongoError || error instanceof mongoose.Error)
    return new AppError('database', {}, { cause: error });
  return undefined;
}

export const taken = 'is taken';
const identifierTaken = 'makes an identifier that is taken';

export function isDuplicate(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === 11000;
}
