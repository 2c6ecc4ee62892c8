import type { Database } from '../../db/database.js';
import { withPrefix } from './sessions.js';

/** The retained message of a topic; without payload there is none. */
export interface RetainedMessage {
  topic: string;
  payload: Buffer;
  qos: 0 | 1 | 2;
  /** Internal id of the device whose topic it is: another one may get the identifier. Absent in earlier versions. */
  parent?: string | undefined;
}

/** A retained message of an account to store or to delete. */
export interface RetainedChange extends RetainedMessage {
  account: string;
}

interface StoredMessage extends RetainedMessage {
  /** The account and the topic. */
  _id: string;
}

const retainedIn = (db: Database) => db.collection<StoredMessage>('mqtt_retained');

/** Reads the retained messages of an account. */
export function findRetained(db: Database, account: string): AsyncIterable<RetainedMessage> {
  return retainedIn(db).find({ _id: withPrefix(account) }, { promoteBuffers: true });
}

/** The account and the topic of a retained message. */
export type RetainedTopic = Pick<RetainedChange, 'account' | 'topic' | 'parent'>;

/** Yields the topics of devices of all accounts that have a retained message. */
export async function* findRetainedOfDevices(db: Database): AsyncIterable<RetainedTopic> {
  const cursor = retainedIn(db).find(
    { _id: /\/(?:streams|status|state\/reported|commands\/result)$/ },
    { projection: { parent: 1 } },
  );
  for await (const { _id, parent } of cursor) {
    const at = _id.indexOf(' ');
    yield { account: _id.slice(0, at), topic: _id.slice(at + 1), parent };
  }
}

/** Stores messages, or deletes those without payload, in their order. */
export async function writeRetained(db: Database, changes: readonly RetainedChange[]): Promise<void> {
  const latest = new Map(changes.map((change) => [`${change.account} ${change.topic}`, change]));
  const writes = [...latest].map(([_id, { account: _, ...message }]) =>
    message.payload.length === 0
      ? { deleteOne: { filter: { _id } } }
      : { replaceOne: { filter: { _id }, replacement: message, upsert: true } },
  );
  await retainedIn(db).bulkWrite(writes, { ordered: false });
}
