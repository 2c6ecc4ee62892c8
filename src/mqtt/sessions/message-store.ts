import type { Id } from '../../db/ids.js';
import { awaitLater, getOrStart } from '../../lib/promises.js';
import { joinKey } from '../store/keys.js';
import { type AddressedMessage, isExpired, type MessageContent, optionsOf, sharesOf } from '../store/messages.js';
import { type QueuedMessage, readQueueLength } from '../store/queue.js';
import type { AccountSessions } from './account-sessions.js';
import type { BrokerDeps } from './broker-deps.js';
import { createForwardRate, type ForwardRate } from './forward-rate.js';
import type { RetainedMessages } from './retained-messages.js';
import type { SessionRecord } from './session-records.js';

const max_queued = 1000;
const max_queued_bytes = 1024 * 1024;
/** Other instances change the queue too. */
const length_age_ms = 1000;

/** A message that is to be stored. */
export interface MessageToStore extends MessageContent, AddressedMessage {
  retain: boolean;
}

/** An accepted message. */
export interface AcceptedMessage extends MessageToStore {
  /** Ids sort by time; '' if neither other sessions nor other instances get the message. */
  id: string;
}

interface Deps extends Pick<BrokerDeps, 'db' | 'writer' | 'peers' | 'stopped'> {
  account: string;
  sessions: AccountSessions;
  retained: RetainedMessages;
  /** Reports a message that a full queue or the limit of retained messages keeps out. */
  onFull(reason: 'queue_full' | 'retained_full', topic: string, client_id?: string): void;
}

/** Stores what must outlast the process before a message is acknowledged: for absent clients, other instances, as retained. */
export class MessageStore {
  private readonly forwardRate: ForwardRate;
  private readonly reading = new Map<SessionRecord, Promise<void>>();

  constructor(private readonly deps: Deps) {
    this.forwardRate = createForwardRate(deps.stopped);
  }

  /** Stores a message as the retained one of its topic only. @returns false without room */
  async retain(message: MessageToStore, parent?: Id): Promise<boolean> {
    const { retained, onFull } = this.deps;
    const { topic, payload, qos } = message;
    const isStored = await retained.store({ topic, payload, qos, ...optionsOf(message), ...(parent && { parent }) });
    if (!isStored) onFull('retained_full', topic);
    return isStored;
  }

  /**
   * Begins to store a message, and chooses the members of shared subscriptions that get it. Messages of one caller are
   * stored in their order. @returns `writes` in progress, false where there is no room to retain it. @throws what the
   * database throws
   * @param createId most messages are in no queue, and an id takes as long as the rest
   */
  async store(content: MessageToStore, createId: () => string) {
    const { account, sessions, retained, writer, peers } = this.deps;
    const { topic, qos } = content;
    const writes: Promise<boolean>[] = [];
    const parent = content.retain ? await retained.findParent(topic) : null;
    if (parent !== null) writes.push(awaitLater(this.retain(content, parent)));
    const addressed = content.is_redelivered ? content : { ...content, ...sessions.shared.choose(topic) };
    const matches = sessions.match(addressed);
    const message: AcceptedMessage = { ...addressed, id: matches.size > 0 ? createId() : '' };
    const recipients = [...matches].flatMap(([record, granted]) => {
      const lower = Math.min(granted.qos, qos);
      return record.state.persistent && !isExpired(record.state, Date.now()) && lower > 0
        ? [{ record, qos: lower as 1 | 2 }]
        : [];
    });
    for (const { record } of recipients) await this.readLength(record);
    const queued = recipients.flatMap(({ record, qos }) => this.enqueue(record, message, qos) ?? []);
    const isWantedElsewhere = () => [...matches.keys()].some(({ state }) => peers.isElsewhere(state.instance));
    const isForwarded = isWantedElsewhere() && (await this.admitForward(message));
    if (queued.length > 0 || isForwarded) {
      const forwarded = { ...addressed, from: peers.id, account, message: message.id };
      writes.push(awaitLater(writer.publish({ queued, forwarded, isWantedElsewhere }).then(() => true)));
    }
    return { message, writes };
  }

  private async readLength(record: SessionRecord): Promise<void> {
    const { db, peers } = this.deps;
    const isOld = ({ read_at }: { read_at: number }) => !peers.isAlone() && performance.now() - read_at > length_age_ms;
    if (record.length !== undefined && !isOld(record.length)) return;
    await getOrStart(this.reading, record, async () => {
      record.length = { ...(await readQueueLength(db, record.state.session)), read_at: performance.now() };
      this.reading.delete(record);
    });
  }

  /** @returns undefined if the queue is full */
  private enqueue(record: SessionRecord, message: AcceptedMessage, qos: 1 | 2): QueuedMessage | undefined {
    const { id, topic, payload, retain: isRetained } = message;
    const size_bytes = payload.length + (message.properties?.length ?? 0);
    const { length } = record;
    if (length === undefined || length.messages >= max_queued || length.bytes + size_bytes > max_queued_bytes) {
      this.deps.onFull('queue_full', topic, record.state.client_id);
      return undefined;
    }
    length.messages++;
    length.bytes += size_bytes;
    const shares = sharesOf(message, record.state.client_id);
    const options = {
      ...optionsOf(message),
      ...(isRetained && { retain: true }),
      ...(shares.length > 0 && { is_shared: true, shares }),
      ...(message.is_redelivered && { is_redelivered: true as const }),
    };
    return { _id: joinKey(record.state.session, id), topic, payload, qos, size_bytes, at: new Date(), ...options };
  }

  /** Waits for the rate of forwarded messages. @returns false for one of QoS 0 that is beyond it */
  private async admitForward({ topic, qos, payload }: AcceptedMessage): Promise<boolean> {
    if (this.forwardRate.tryTake(payload.length)) return true;
    if (qos > 0) await this.forwardRate.take(payload.length);
    else this.deps.onFull('queue_full', topic);
    return qos > 0;
  }
}
