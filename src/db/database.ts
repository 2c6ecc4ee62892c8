import mongoose, { type mongo } from 'mongoose';
import { StartError } from '../errors.js';
import type { Id } from './ids.js';

export interface Log {
  debug?(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Time limit of one read, below that of a request (reference/requests.md#time-limits). */
export const read_limit_ms = 4000;

/** A document of any collection. */
export interface StoredDocument {
  _id: Id;
  [path: string]: unknown;
}

/** A document of a resource. */
export interface StoredObject extends StoredDocument {
  account: string;
  id_developer: string;
  enabled?: boolean;
  /** Internal ids of the objects above it, from the top. */
  ancestors?: readonly Id[];
}

export type Collection<T extends mongo.Document = StoredDocument> = mongo.Collection<T>;

export interface DatabaseAccess {
  /** @throws AppError database (5031) while there is no connection, or the data must not be used */
  collection<T extends mongo.Document = StoredDocument>(plural: string): Collection<T>;
  /** Runs a command; 64-bit integers are not converted. @throws AppError database (5031) as `collection` does */
  command(command: mongo.BSON.Document): Promise<mongo.BSON.Document>;
}

export interface Database extends DatabaseAccess {
  newId(): Id;
  /** The smallest id generated at `moment` (epoch milliseconds) or later. */
  buildMinId(moment: number): Id;
  /** The fixed id of the first API key of an empty database. */
  firstId: Id;
  /** Resolves after the first attempt to connect and run maintenance, successful or not. Rejects with StartError if none can succeed. */
  attempted: Promise<void>;
  /** @throws AppError database (5031) while the data is upgraded or must not be used */
  assertUpgraded(): void;
  /** Reports whether the database answers, all indexes exist and no removal is unfinished. */
  isReady(): Promise<boolean>;
  /** Readiness as known without a query. */
  readState(): { isReady: boolean; hasPrimary: boolean; clock_offset_ms: number };
  /** False while the clock differs too much from that of the database: what has a deadline waits. */
  isClockRight(): boolean;
  /** Reports an interrupted operation: not ready until the next maintenance has succeeded. */
  markNotReady(): void;
  /** Ends transactions of processes that have crashed; runs before each maintenance too. */
  endIdleTransactions(): Promise<void>;
  close(): Promise<void>;
}

/** Checks an address. @returns its options @throws StartError without the message of the driver, which may contain the address with a password */
export function checkAddress(uri: string): mongo.MongoOptions {
  try {
    return new mongoose.mongo.MongoClient(uri).options;
  } catch (cause) {
    throw new StartError('MONGODB_URI must be an address that MongoDB drivers understand', { cause });
  }
}
