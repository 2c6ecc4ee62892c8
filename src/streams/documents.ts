import mongoose, { type mongo } from 'mongoose';
import type { Database } from '../db/database.js';
import { findRejected, hasOnlyDuplicates } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { stream } from '../resources/index.js';
import type { StreamKind } from '../resources/stream.js';
import { readReceipt } from '../resources/stream-key.js';
import type { NextNumber } from './numbering.js';
import type { Entry } from './parse-streams.js';

const { Double } = mongoose.mongo;

/** A stream as it is stored (docs/decisions/0024-streams-clustered-by-device.md). */
export interface StreamDocument {
  _id: StreamKey;
  /** Internal id of the device: another one may have had the identifier before. */
  parent: Id | undefined;
  _t: StreamKind;
  [path: string]: unknown;
}

/** Streams are stored in the order of these members. */
export type StreamKey = { account: string; device: string; at: mongo.Double; n: mongo.Long };

interface Sender {
  account: string;
  /** Undefined: the owner of the device. */
  user: string | undefined;
  /** Epoch seconds. */
  now: number;
  isWill?: boolean;
  isImport?: boolean;
}

/** Builds the document of a stream; `setSender` completes it. @param n from `createNumbering` */
export function buildDocument(
  { account, user, now, isWill = false, isImport = false }: Sender,
  { device, _t, protocol, at, data, message }: Entry,
  n: mongo.Long,
): StreamDocument {
  return {
    // one type of number, and no negative zero: equal times have equal keys
    _id: { account, device, at: new Double((at ?? now) + 0), n },
    parent: undefined,
    _t,
    protocol,
    data,
    owner: user,
    ...(message && { message }),
    // its number does not say when the device was last heard of (`src/objects/receipts/lost-receipts.ts`)
    ...((isWill || isImport) && { is_silent: true }),
  };
}

/** Completes a document by the device that sent the stream. */
export function setSender(document: StreamDocument, { _id, owner }: { _id: Id; owner: string }): void {
  document.parent = _id;
  document.owner ??= owner;
}

/** Inserts streams durably. One gets another number if another process has given its number to a stream of the same key. */
export async function insertDocuments(
  db: Database,
  documents: readonly StreamDocument[],
  nextNumber: NextNumber,
): Promise<void> {
  const streams = db.collection<StreamDocument>(stream.plural);
  const options = { ordered: false, forceServerObjectId: true };
  try {
    await streams.insertMany([...documents], options);
  } catch (error) {
    if (!hasOnlyDuplicates(error)) throw error;
    const rejected = findRejected(documents, error);
    for (const { _id } of rejected) _id.n = nextNumber(readReceipt(_id.n.toBigInt()));
    await streams.insertMany(rejected, options);
  }
}
