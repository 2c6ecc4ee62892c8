import type { Database } from '../../db/database.js';
import { hasOnlyDuplicates } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { findMany, runPipeline } from '../../db/raw-find.js';
import { withPrefix } from './keys.js';
import type { MessageContent } from './messages.js';

/** A message that a persistent session has not acknowledged (reference/mqtt.md#sessions). */
export interface QueuedMessage extends MessageContent {
  /** The session and the message, whose ids sort by time. */
  _id: string;
  qos: 1 | 2;
  /** It was published as retained. */
  retain?: boolean;
  /** It came by shared subscriptions. */
  is_shared?: boolean;
  /** Their names; absent in messages that an earlier version has queued. */
  shares?: readonly string[];
  /** Another member had it before. */
  is_redelivered?: true;
  size_bytes: number;
  /** The packet id under which it was sent. */
  packet_id?: number;
  /** The client has it and will get PUBREL only; topic and payload are empty. */
  released?: boolean;
  at: Date;
}

/** A packet id of QoS 2 that a client has not released. */
export interface StoredPacket {
  /** The session and the packet id. */
  _id: string;
  packet_id: number;
  /** Names the message: the ids of its streams derive from it. */
  message: Id;
  /** The message is stored: a repetition is only acknowledged. */
  done: boolean;
  at: Date;
}

const queueIn = (db: Database) => db.collection<QueuedMessage>('mqtt_queue');
const receivedIn = (db: Database) => db.collection<StoredPacket>('mqtt_received');

/** Inserts messages; those that are queued already stay as they are. */
export async function insertQueued(db: Database, messages: readonly QueuedMessage[]): Promise<void> {
  try {
    await queueIn(db).insertMany([...messages], { ordered: false });
  } catch (error) {
    if (!hasOnlyDuplicates(error)) throw error;
  }
}

function findInOrder(db: Database, session: string, condition: object): Promise<QueuedMessage[]> {
  const query = { $and: [{ _id: withPrefix(session) }, condition] };
  return findMany(queueIn(db), query, { sort: { _id: 1 }, promoteBuffers: true });
}

/** Finds the queued messages of a session in their order, but not the excluded ones. */
export function findQueued(db: Database, session: string, excludedIds: readonly string[]): Promise<QueuedMessage[]> {
  return findInOrder(db, session, { _id: { $nin: excludedIds } });
}

/** Finds the messages that another member of a shared subscription may get instead of a session. */
export function findShared(db: Database, session: string): Promise<QueuedMessage[]> {
  return findInOrder(db, session, { is_shared: true, released: { $ne: true } });
}

/** Finds the packet ids under which queued messages of a session were sent. */
export async function findSentIds(db: Database, session: string): Promise<number[]> {
  const query = { _id: withPrefix(session), packet_id: { $exists: true } };
  const sent = await findMany(queueIn(db), query, { projection: { packet_id: 1 } });
  return sent.flatMap(({ packet_id }) => packet_id ?? []);
}

/** Messages and bytes of a queue. */
export interface QueueLength {
  messages: number;
  bytes: number;
}

/** Measures the queue of a session. */
export async function readQueueLength(db: Database, session: string): Promise<QueueLength> {
  const group = { _id: null, messages: { $sum: 1 }, bytes: { $sum: '$size_bytes' } };
  const stages = [{ $match: { _id: withPrefix(session) } }, { $group: group }];
  const [length = { messages: 0, bytes: 0 }] = await runPipeline<QueueLength>(queueIn(db), stages);
  return length;
}

/** A change of a queued message: sent under a packet id, released by PUBREC, or acknowledged. */
export type QueueChange = { _id: string } & ({ packet_id: number; released?: true } | { acknowledged: true });

/** Applies changes in their order. */
export async function applyQueueChanges(db: Database, changes: readonly QueueChange[]): Promise<void> {
  const writes = changes.map((change) => {
    const filter = { _id: change._id };
    if ('acknowledged' in change) return { deleteOne: { filter } };
    const { packet_id, released } = change;
    const content = released && { released, topic: '', payload: Buffer.alloc(0), size_bytes: 0 };
    return { updateOne: { filter, update: { $set: { packet_id, ...content } } } };
  });
  await queueIn(db).bulkWrite(writes);
}

/** A change of a received packet id: stored before its message is, done, or released by the client. */
export type ReceivedChange = StoredPacket | { _id: string; done: true } | { _id: string; released: true };

/** Applies changes in their order. */
export async function applyReceivedChanges(db: Database, changes: readonly ReceivedChange[]): Promise<void> {
  const writes = changes.map((change) => {
    const filter = { _id: change._id };
    if ('released' in change) return { deleteOne: { filter } };
    if ('message' in change) {
      const { _id, ...replacement } = change;
      return { replaceOne: { filter, replacement, upsert: true } };
    }
    return { updateOne: { filter, update: { $set: { done: true } } } };
  });
  await receivedIn(db).bulkWrite(writes);
}

/** Finds the packet ids of a session. */
export function findReceived(db: Database, session: string): Promise<StoredPacket[]> {
  return findMany(receivedIn(db), { _id: withPrefix(session) });
}

/** Deletes what is queued for a session, and the packet ids it has sent. */
export async function deleteQueue(db: Database, session: string): Promise<void> {
  const query = { _id: withPrefix(session) };
  await Promise.all([queueIn(db).deleteMany(query), receivedIn(db).deleteMany(query)]);
}
