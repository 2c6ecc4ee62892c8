import type { Database } from '../../db/database.js';
import type { AddressedMessage, MessageContent } from './messages.js';

/** A message on its way to the subscribers of other instances. */
export interface ForwardedMessage extends MessageContent, AddressedMessage {
  /** The instance that has received it. */
  from: string;
  account: string;
  /** Names the message in the queues of sessions. */
  message: string;
  /** It was published as retained. */
  retain?: boolean;
}

/** Instances read forwarded messages within a second; an instance that is away for longer gets them from its queues. */
export const forward_ttl_s = 60;

/** The collection of forwarded messages. */
export const forwards = 'mqtt_messages';

const forwardsIn = (db: Database) => db.collection<ForwardedMessage & { at: Date }>(forwards);

/** Writes messages for other instances in their order. */
export async function insertForwarded(db: Database, messages: readonly ForwardedMessage[]): Promise<void> {
  const at = new Date();
  await forwardsIn(db).insertMany(messages.map((message) => ({ ...message, at })));
}
