import { awaitLater, getOrStart } from '../lib/promises.js';
import { Client, type ClientDeps } from './client.js';
import { reasons } from './connection/reasons.js';
import type { ConnectRequest, Refusal } from './protocol/connect-packet.js';
import { PublishHandler, type Routed } from './publish-handler.js';
import { type AccountSessions, type ClaimedSession, openAccountSessions } from './sessions/account-sessions.js';
import type { BrokerDeps } from './sessions/broker-deps.js';
import type { Delivery } from './sessions/delivery.js';
import { DeviceFeeds } from './sessions/device-feeds.js';
import { createFilterTree } from './sessions/filter-tree.js';
import { createForwardedDelivery } from './sessions/message-memory.js';
import { type AcceptedMessage, MessageStore, type MessageToStore } from './sessions/message-store.js';
import { createReceivedPackets } from './sessions/received-packets.js';
import { openRetainedMessages, type RetainedMessages } from './sessions/retained-messages.js';
import type { Session } from './sessions/session.js';
import { matchMessage } from './sessions/session-filters.js';
import type { SessionRecord } from './sessions/session-records.js';
import type { Subscribers } from './sessions/subscriptions.js';
import type { AccountChange } from './store/changes.js';
import { isExpired, optionsOf, type SharedMessage } from './store/messages.js';
import { findReceived, findSentIds } from './store/queue.js';
import { findRetained } from './store/retained.js';
import { endDelay } from './store/wills.js';

interface Parts {
  account: string;
  sessions: AccountSessions;
  retained: RetainedMessages;
}

/**
 * Opens the broker of an account. Messages, retained messages, sessions and client ids of different accounts never meet,
 * because each account has a broker of its own (reference/mqtt.md#broker). @throws what the database throws
 */
async function openAccountBroker(account: string, deps: BrokerDeps): Promise<AccountBroker> {
  const { db, clock, rules, writer, link } = deps;
  const sessions = await openAccountSessions(account, deps, (message) => broker.redeliver(message));
  const retained = await openRetainedMessages(findRetained(db, account), {
    write: (message) => writer.retain({ account, ...message }),
    findDevice: (id) => link.findDevice(account, id),
    now: clock,
    failed: (error) => rules.dropped({ account }, { drop: 'database', error }),
  });
  const broker = new AccountBroker(deps, { account, sessions, retained });
  return broker;
}

/** The topics, sessions and client ids of one account. */
export class AccountBroker {
  private readonly clients = new Map<string, Delivery>();
  private readonly live = new Set<Session>();
  private readonly subscribers: Subscribers = createFilterTree();
  private readonly deviceFeeds: DeviceFeeds;
  private readonly messageStore: MessageStore;
  private readonly clientDeps: ClientDeps;
  private readonly deliverForwarded: (message: AcceptedMessage) => void;

  constructor(
    private readonly deps: BrokerDeps,
    private readonly parts: Parts,
  ) {
    const { rules, messageMemory, link } = deps;
    const { account, retained } = parts;
    const { clients, subscribers } = this;
    const deviceFeeds = new DeviceFeeds(account, link);
    const onFull = (drop: 'queue_full' | 'retained_full', topic: string, client_id?: string) =>
      rules.dropped({ account, client_id }, { drop }, topic);
    const messageStore = new MessageStore({ ...deps, ...parts, onFull });
    const route = (message: AcceptedMessage) => this.route(message);
    this.deviceFeeds = deviceFeeds;
    this.messageStore = messageStore;
    this.deliverForwarded = createForwardedDelivery(
      (bytes) => messageMemory.tryTake(account, bytes),
      (message) => route(message).read,
      ({ topic }) => onFull('queue_full', topic),
    );
    this.clientDeps = {
      ...{ ...deps, deviceFeeds, retained, subscribers, clients },
      publishHandler: new PublishHandler({ ...deps, route, messageStore }),
      saveSubscriptions: (session, onQueue) => this.saveSubscriptions(session, onQueue),
      redeliver: (message) => this.redeliver(message),
    };
  }

  /**
   * Serves a session after the previous one with its client id has ended.
   * @returns the reason of a refusal. @throws what the database throws
   */
  async admit(session: Session, request: ConnectRequest): Promise<Refusal | undefined> {
    const claimed = await this.takeOver(session, request.packet.clean);
    if (claimed === undefined) return 'client id in use';
    const client = new Client(session, this.clientDeps);
    await this.openState(session, client, claimed);
    if (request.input.gone.aborted) session.end(reasons.unspecified);
    client.start(request, claimed.isResumed);
    return undefined;
  }

  /** Deletes sessions that no client continues. `now` in epoch seconds. */
  forgetGone(now: number): Promise<void> {
    return this.parts.sessions.forgetGone(now);
  }

  /** Stores what other instances have to know of the clients of this one. */
  async storeClients(): Promise<void> {
    await this.parts.sessions.storeClean();
    await Promise.all([...this.live].map((session) => session.will.store(session, this.deps.peers.id)));
  }

  /** Applies a change that another instance has made. */
  async apply(change: AccountChange): Promise<void> {
    const { retained, sessions } = this.parts;
    if (change.kind === 'retained') retained.apply(change.message);
    else if (change.kind === 'forwarded')
      this.deliverForwarded({ retain: false, ...change.message, id: change.message.message });
    else await sessions.apply(change);
  }

  /** Stores a message that comes from no client of this instance, and hands it to the subscribers. */
  async publish(content: MessageToStore, createId: () => string): Promise<void> {
    const { message, writes } = await this.messageStore.store(content, createId);
    await Promise.all(writes);
    this.route(message);
  }

  /** Gives a message that a client has not acknowledged, or may not have, to another member of each of its groups. */
  async redeliver(message: SharedMessage): Promise<void> {
    const { db, clock, stopped } = this.deps;
    const { topic, payload, qos, shares } = message;
    const chosen = isExpired(message, clock()) ? {} : this.parts.sessions.shared.choose(topic, shares);
    if (chosen.members === undefined || stopped.aborted) return;
    const content = { topic, payload, qos, retain: false, ...optionsOf(message) };
    await this.publish({ ...content, ...chosen, is_redelivered: true }, () => String(db.newId()));
  }

  /** Ends with the process, or when this instance was declared dead. */
  close(): void {
    this.deviceFeeds.close();
  }

  private route(message: AcceptedMessage): Routed {
    const { subscribers, clients } = this;
    const busy: Promise<unknown>[] = [];
    const matches = matchMessage(subscribers, message, clients, ({ session }) => session.subscriptions);
    for (const [delivery, match] of matches) {
      const read = awaitLater(delivery.deliver(message, match));
      if (read !== undefined) busy.push(read);
    }
    return { count: matches.size, read: busy.length === 0 ? undefined : awaitLater(Promise.all(busy)) };
  }

  private async saveSubscriptions(session: Session, onQueue: (record: SessionRecord) => void): Promise<void> {
    // what is published elsewhere after SUBACK is to arrive
    if (await this.parts.sessions.saveSubscriptions(session, onQueue)) await this.deps.peers.waitUntilRead();
  }

  /** Closes the previous connections of the client id. @returns undefined if the id belongs to another owner */
  private async takeOver(session: Session, isClean: boolean): Promise<ClaimedSession | undefined> {
    const { db, rules, stopped } = this.deps;
    const { sessions } = this.parts;
    const claimed = await sessions.claim(session, isClean);
    if (claimed === undefined) return undefined;
    this.live.add(session);
    const forget = () => {
      this.live.delete(session);
      return stopped.aborted ? undefined : sessions.leave(session);
    };
    session.left.then(forget).catch(rules.failed);
    for (const previous of claimed.previous) previous.end(reasons.taken_over);
    await Promise.all(claimed.previous.map(({ left }) => left));
    // the wills of these connections wait only now
    if (claimed.hasDelayedWill) await endDelay(db, claimed.record.state._id, claimed.isResumed);
    return claimed;
  }

  private async openState(session: Session, client: Client, claimed: ClaimedSession): Promise<void> {
    const { db, peers, writer } = this.deps;
    const { state, isStored } = claimed.record;
    if (isStored) await session.will.store(session, peers.id);
    if (!state.persistent) return;
    const [packets, sentIds] = await Promise.all([findReceived(db, state.session), findSentIds(db, state.session)]);
    const { changeReceived: submit } = writer;
    session.received = createReceivedPackets(db.newId, { session: state.session, packets, submit });
    await client.resume(claimed, sentIds);
  }
}

/** The brokers of all accounts. */
export type AccountBrokers = ReturnType<typeof createAccountBrokers>;

/** Creates the brokers of all accounts, each opened at the first login of its account. */
export function createAccountBrokers(deps: BrokerDeps) {
  const brokers = new Map<string, Promise<AccountBroker>>();
  const openBrokers = async () => {
    const settled = await Promise.allSettled(brokers.values());
    return settled.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  };
  return {
    /** @throws what the database throws */
    of: (account: string) => getOrStart(brokers, account, () => openAccountBroker(account, deps)),
    /** @returns undefined for an account without a login so far */
    find: (account: string) => brokers.get(account),
    all: openBrokers,
    /** Deletes sessions that no client continues. `now` in epoch seconds. */
    async forgetGone(now: number): Promise<void> {
      for (const broker of await openBrokers()) await broker.forgetGone(now);
    },
    /** Closes and forgets all brokers. */
    async close(): Promise<void> {
      const opened = await openBrokers();
      brokers.clear();
      for (const broker of opened) broker.close();
    },
  };
}
