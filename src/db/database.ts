import type { EventEmitter } from 'node:events';
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

/** A lease that is wanted for `lasts_ms` by the database's clock, starting after the call. */
export interface LeaseRequest {
  name: string;
  holder: string;
  lasts_ms: number;
  /** Tag of the lease if it has none yet. */
  tag: string;
  /** The holder had the lease when it was last taken, with this tag. */
  isRenewal?: boolean;
}

/**
 * Acquires or renews a lease. Until it expires, only the holder can renew it. @returns the lease's tag, or undefined while
 * another instance holds it
 */
export type TakeLease = (request: LeaseRequest) => Promise<string | undefined>;

/** Documents that a job has something to do with; an index finds the first one. */
export interface DueLook {
  collection: Pick<Collection, 'db' | 'collectionName'>;
  filter: object;
}

/** Reports whether one of the documents exists. */
export type FindDue = (looks: readonly DueLook[]) => Promise<boolean>;

export interface DatabaseAccess {
  /** @throws AppError database (5031) while there is no connection, or the data must not be used */
  collection<T extends mongo.Document = StoredDocument>(plural: string): Collection<T>;
  /** Runs a command; 64-bit integers are not converted. @throws AppError database (5031) as `collection` does */
  command(command: mongo.BSON.Document): Promise<mongo.BSON.Document>;
  /** Takes leases together with the other jobs of this process; tools take them one by one. */
  takeLease?: TakeLease;
  /** Emits the name of a job for which this process has work; the jobs of others find it after their period. */
  wakeUps?: EventEmitter;
}

export interface Database extends DatabaseAccess {
  /** Looks together with the other jobs of this process. */
  findDue: FindDue;
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
  /** Waits 2 s at most for the maintenance, and for jobs that were stopped. */
  close(jobsEnded?: Promise<unknown>): Promise<void>;
}

/** Dependencies of all jobs of the service. */
export interface JobDeps {
  db: Database;
  log: Log;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** Checks an address. @returns its options @throws StartError without the message of the driver, which may contain the address with a password */
export function checkAddress(uri: string): mongo.MongoOptions {
  try {
    return new mongoose.mongo.MongoClient(uri).options;
  } catch (cause) {
    throw new StartError('MONGODB_URI must be an address that MongoDB drivers understand', { cause });
  }
}
