import { buildKeyQuery, keyOf } from '../../db/batching/loader.js';
import type { Database } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { findAll } from '../../db/raw-find.js';
import { readInBatches } from '../../lib/batches.js';
import { device, retainedmessage } from '../../resources/index.js';
import { findDeviceOf } from '../protocol/topics.js';
import { joinKey, splitKey, withPrefix } from './keys.js';
import { type MessageContent, withBuffer } from './messages.js';

/** The retained message of a topic; without payload there is none. */
export interface RetainedMessage extends MessageContent {
  /** The device whose topic it is: another one may get the identifier. */
  parent?: Id | undefined;
}

/** A retained message of an account to store or to delete. */
export interface RetainedChange extends RetainedMessage {
  account: string;
}

interface StoredMessage extends RetainedMessage {
  /** The account and the topic. */
  _id: string;
  /** Both only with `parent`: the removal of a device looks for them. */
  account?: string;
  device?: string;
}

const retainedIn = (db: Database) => db.collection<StoredMessage>(retainedmessage.plural);

/** Reads the retained messages of an account. */
export async function* findRetained(db: Database, account: string): AsyncIterable<RetainedMessage> {
  const cursor = retainedIn(db).find({ _id: withPrefix(account) }, { projection: { _id: 0, account: 0, device: 0 } });
  for await (const message of cursor) yield withBuffer(message);
}

/** Stores messages, or deletes those without payload, in their order. */
export async function writeRetained(db: Database, changes: readonly RetainedChange[]): Promise<void> {
  const latest = new Map(changes.map((change) => [joinKey(change.account, change.topic), change]));
  const writes = [...latest].map(([_id, { account, ...message }]) => {
    if (message.payload.length === 0) return { deleteOne: { filter: { _id } } };
    const below = message.parent && { account, device: findDeviceOf(message.topic) ?? '' };
    return { replaceOne: { filter: { _id }, replacement: { ...message, ...below }, upsert: true } };
  });
  await retainedIn(db).bulkWrite(writes, { ordered: false });
}

const batch_size = 100;

/** Gives messages on topics of devices, stored before they had a parent, the device; deletes those of deleted devices. */
export async function upgradeRetained(db: Database): Promise<void> {
  const query = { _id: /\/(?:streams|status|state\/reported|commands\/result)$/, device: { $exists: false } };
  const projection = { account: 1, id_developer: 1 };
  for await (const messages of readInBatches(retainedIn(db).find(query, { projection: { _id: 1 } }), batch_size)) {
    const named = messages.flatMap(({ _id }) => {
      const [account, topic] = splitKey(_id);
      const id = findDeviceOf(topic);
      return id === undefined ? [] : [{ _id, account, id }];
    });
    const filter = buildKeyQuery(named);
    const found = await findAll(db.collection(device.plural), { filter, projection });
    const parents = new Map(
      found.map(({ _id, account, id_developer }) => [keyOf({ account: `${account}`, id: `${id_developer}` }), _id]),
    );
    const writes = named.map(({ _id, account, id }) => {
      const parent = parents.get(keyOf({ account, id }));
      const stored = { _id, device: { $exists: false } };
      if (parent === undefined) return { deleteOne: { filter: stored } };
      return { updateOne: { filter: stored, update: { $set: { account, device: id, parent: parent as Id } } } };
    });
    if (writes.length > 0) await retainedIn(db).bulkWrite(writes, { ordered: false });
  }
}
