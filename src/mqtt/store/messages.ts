import mongoose from 'mongoose';

const { Binary } = mongoose.mongo;

/** Additions of MQTT 5 to a message; absent in those of earlier versions. */
export interface MessageOptions {
  /** Properties that are passed on, encoded as they were received. */
  properties?: Buffer | undefined;
  /** After this time it is not delivered. */
  expires_at?: Date | undefined;
}

/** A message, whomever it waits for. */
export interface MessageContent extends MessageOptions {
  topic: string;
  payload: Buffer;
  qos: 0 | 1 | 2;
}

/** The members of shared subscriptions that get a message. */
export interface ChosenMembers {
  /** Their client ids. */
  members?: readonly string[];
  /** The shared subscription of each. */
  shares?: readonly string[];
}

/** A message, whom it comes from, and the members of shared subscriptions that get it. */
export interface AddressedMessage extends ChosenMembers {
  topic: string;
  /** The client id of the publisher. */
  sender?: string | undefined;
  /** Only the members get it: another one had it before. */
  is_redelivered?: true;
}

/** A message that a member of shared subscriptions has got, and another may get instead. */
export interface SharedMessage extends MessageContent, Pick<ChosenMembers, 'shares'> {}

/** Lists the shared subscriptions by which a client gets a message. */
export function sharesOf({ members = [], shares = [] }: ChosenMembers, client_id: string): readonly string[] {
  return shares.filter((_, index) => members[index] === client_id);
}

/** Picks the options of a message that are there. */
export function optionsOf({ properties, expires_at }: MessageOptions): MessageOptions {
  return { ...(properties && { properties }), ...(expires_at && { expires_at }) };
}

/** Reports whether a message may not be delivered any more. @param now epoch milliseconds */
export function isExpired({ expires_at }: { expires_at?: Date | undefined }, now: number): boolean {
  return expires_at !== undefined && expires_at.getTime() <= now;
}

const toBuffer = (value: unknown) => (value instanceof Binary ? Buffer.from(value.value()) : Buffer.alloc(0));

/** Replaces the payload and the properties of a document. */
export function withBuffer<Message extends { payload: unknown; properties?: unknown }>(
  message: Message,
): Message & { payload: Buffer; properties?: Buffer } {
  const { payload, properties } = message;
  return {
    ...message,
    payload: toBuffer(payload),
    ...(properties !== undefined && { properties: toBuffer(properties) }),
  };
}
