import type { EventEmitter } from 'node:events';
import { Aedes, type Client, type PublishPacket, type Subscription } from 'aedes';
import { generate } from 'mqtt-packet';
import type { Database } from '../db/database.js';
import { coalesce } from '../lib/coalesce.js';
import type { Shares } from '../lib/shares.js';
import type { DeviceLink } from './device-link.js';
import { canReceive } from './login/permissions.js';
import { type ConnectRequest, type Refusal, removeCredentials } from './protocol/connect-packet.js';
import { setMessageId, takePacketId } from './protocol/message-ids.js';
import { type LimitedStream, limitPackets } from './protocol/packet-limits.js';
import { createPublishHandler, type PublishRules } from './publish-handler.js';
import { type AccountSessions, type ClaimedSession, openAccountSessions } from './sessions/account-sessions.js';
import { type DeliveredPacket, limitDelivery, unlimited_qos } from './sessions/delivery.js';
import { openDeviceFeed } from './sessions/device-feed.js';
import { createDeviceFeeds, isFed } from './sessions/device-feeds.js';
import { createForwardRate } from './sessions/forward-rate.js';
import { countInput, createForwardedDelivery, type InputMemory } from './sessions/message-memory.js';
import { type AcceptedMessage, createMessageStore } from './sessions/message-store.js';
import type { Peers } from './sessions/peers.js';
import { createPersistence, resumedSession } from './sessions/persistence.js';
import { createReceivedPackets } from './sessions/received-packets.js';
import { openRetainedMessages } from './sessions/retained-messages.js';
import type { DeviceFeed, Qos, Session } from './sessions/session.js';
import { openSessionQueue, type QueuedPacket } from './sessions/session-queue.js';
import type { StateWriter } from './sessions/state-writer.js';
import type { AccountChange } from './store/changes.js';
import { findReceived } from './store/queue.js';
import { findRetained } from './store/retained.js';

/** The topics of a device, 100 of its own and six of the service, and filters over them. */
const max_subscriptions = 200;
const drain_ms = 5000;

/** Decisions about the messages of a session. */
export interface BrokerRules extends PublishRules {
  maySubscribe(session: Session, filter: string): Promise<boolean>;
  refuseSubscription(session: Session, filter: string, reason: string): false;
  isFresh(session: Session): boolean;
}

/** State that the brokers of all accounts share. */
export interface BrokerDeps {
  db: Database;
  rules: BrokerRules;
  writer: StateWriter;
  peers: Peers;
  messageMemory: Shares;
  link: DeviceLink;
  /** Aborts when the process ends: what its clients leave is stored all at once. */
  stopped: AbortSignal;
}

/** The topics, sessions and client ids of one account. */
export interface AccountBroker extends Pick<AccountSessions, 'ownersWithSessions' | 'forget'> {
  /**
   * Serves a session after the previous one with its client id has ended.
   * @returns the reason of a refusal. @throws what the database throws
   */
  admit(session: Session, request: ConnectRequest): Promise<Refusal | undefined>;
  /** Stores what other instances have to know of the clients of this one. */
  storeClients(): Promise<void>;
  /** Applies a change that another instance has made. */
  apply(change: AccountChange): Promise<void>;
  /** Publishes messages that come from no client of this instance. */
  publish(messages: readonly AcceptedMessage[]): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the broker of an account. Messages, retained messages, sessions and client ids of different accounts never meet,
 * because each account has a broker of its own (reference/mqtt.md#broker). @throws what the database throws
 */
export async function openAccountBroker(account: string, deps: BrokerDeps): Promise<AccountBroker> {
  const { db, rules, writer, peers, messageMemory, link, stopped } = deps;
  const sessionByStream = new WeakMap<object, Session>();
  const sessionOf = (client: Client | null) => (client === null ? undefined : sessionByStream.get(client.conn));
  const sessions = await openAccountSessions({ db, account, peers, failed: rules.failed });
  const retained = await openRetainedMessages(findRetained(db, account), {
    write: (message) => writer.retain({ account, ...message }),
    findDevice: (id) => link.findDevice(account, id),
    failed: (error) => rules.dropped({ account }, { drop: 'database', error }),
  });
  const deviceFeeds = createDeviceFeeds(account, link);
  const grant = createGrant(rules, sessions, peers);
  const live = new Set<Session>();

  const broker = await Aedes.createBroker({
    drainTimeout: drain_ms,
    // with a limit, mqemitter queues messages and empties its queue recursively
    concurrency: 0,
    // what a client may send before CONNACK is bounded in bytes
    queueLimit: Number.POSITIVE_INFINITY,
    maxInflightInbound: 100,
    maxClientsIdLength: Number.POSITIVE_INFINITY,
    persistence: createPersistence({ sessions, retained, sessionOf }),
    authenticate(client, _username, _password, done) {
      const session = sessionOf(client);
      done(null, session !== undefined && (!session.hasClientId || session.client_id === client.id));
    },
    authorizePublish(client, packet, done) {
      const session = sessionOf(client);
      if (session === undefined) done(new Error('no session'));
      else if (packet !== (client as Client & { will?: object }).will) handlePublish(session, packet, done);
      else
        session.will
          .take()
          .then(
            (isOwn) =>
              isOwn && !stopped.aborted ? handlePublish(session, packet, done, true) : done(new Error('not published')),
            done,
          );
    },
    authorizeSubscribe(client, subscription, done) {
      const session = sessionOf(client);
      const finish = (isGranted: boolean) => {
        done(null, isGranted ? { ...subscription, qos: unlimited_qos } : null);
        if (!isGranted || session?.stream.destroyed !== false || !isFed(subscription.topic)) return;
        session.deviceFeed ??= session.openFeed?.();
        if (session.deviceFeed !== undefined) deviceFeeds.follow(session.deviceFeed, subscription.topic);
      };
      grant(session, subscription).then(finish).catch(rules.failed);
    },
    authorizeForward(client, packet) {
      const session = sessionOf(client);
      if (session === undefined || (!session.revoked && !rules.isFresh(session))) return null;
      if (!session.revoked && canReceive(session.permissions, packet.topic)) return packet;
      session.queue?.withdraw(packet);
      return null;
    },
  });
  // longer topics are dropped, their subscriptions refused: aedes would close the connection
  Object.assign(broker, { maxTopicLevels: Number.POSITIVE_INFINITY });
  (broker as EventEmitter).on('error', rules.failed);
  broker.on('clientError', (client, { message }) => {
    const session = sessionOf(client);
    if (session !== undefined && message === 'drain timeout') rules.protocolError(session, 'it does not read');
  });
  forwardDirectly(broker, (client) => sessionOf(client)?.inputMemory?.finishOldest());
  broker.on('unsubscribe', (filters, client) => {
    const session = sessionOf(client);
    for (const filter of filters) {
      if (session?.deviceFeed !== undefined) deviceFeeds.unfollow(session.deviceFeed, filter);
      session?.subscriptions.delete(filter);
    }
    // aedes has asked for it already unless the session is clean
    if (session !== undefined && client.clean && !client.closed)
      sessions.saveSubscriptions(session).catch(rules.failed);
  });
  const onFull = (drop: 'queue_full' | 'retained_full', topic: string, client_id?: string) =>
    rules.dropped({ account, client_id }, { drop }, topic);
  const forwardRate = createForwardRate(stopped);
  const messageStore = createMessageStore({ db, account, sessions, retained, writer, peers, forwardRate, onFull });
  const handlePublish = createPublishHandler({ broker, messageStore, rules, newId: db.newId });

  function emit({ id, topic, payload, qos, retain }: AcceptedMessage, done: () => void = () => undefined): void {
    const packet: PublishPacket = { cmd: 'publish', topic, payload, qos, retain, dup: false };
    setMessageId(packet, id);
    broker.publish(packet, done);
  }
  const deliverForwarded = createForwardedDelivery<AcceptedMessage>({
    tryTake: (bytes) => messageMemory.tryTake(account, bytes),
    emit,
    onFull: ({ topic }) => onFull('queue_full', topic),
  });

  function openFeed(session: Session, client: Client, deliver: (packet: DeliveredPacket) => Promise<void>): DeviceFeed {
    const connected = client.connected
      ? Promise.resolve()
      : new Promise<void>((resolve) => client.once('connected', resolve));
    const own = { session, connected, takePacketId: () => takePacketId(client), deliver, failed: rules.failed };
    const feed = openDeviceFeed({ link, ...own });
    session.ended.then(() => deviceFeeds.leave(feed)).catch(rules.failed);
    return feed;
  }

  /** Closes the previous connections of the client id. @returns undefined if the id belongs to another owner */
  async function takeOver(session: Session, isPersistent: boolean): Promise<ClaimedSession | undefined> {
    const claimed = await sessions.claim(session, isPersistent);
    if (claimed === undefined) return undefined;
    live.add(session);
    session.left.then(() => live.delete(session)).catch(rules.failed);
    session.left.then(() => (stopped.aborted ? undefined : sessions.leave(session))).catch(rules.failed);
    for (const { stream } of claimed.previous) stream.destroy();
    await Promise.all(claimed.previous.map(({ left }) => left));
    return claimed;
  }

  async function openState(session: Session, { record, isResumed, wasCut }: ClaimedSession): Promise<void> {
    if (record.isStored) await session.will.store(session, peers.id);
    if (!record.state.persistent) return;
    session.isResumed = isResumed;
    const stored_session = record.state.session;
    const packets = await findReceived(db, stored_session);
    session.received = createReceivedPackets(db.newId, {
      session: stored_session,
      packets,
      submit: writer.changeReceived,
    });
    const shrink = (messages: number, bytes: number) => {
      const { length } = record;
      if (length === undefined) return;
      length.messages = Math.max(0, length.messages - messages);
      length.bytes = Math.max(0, length.bytes - bytes);
    };
    const queueDeps = { db, submitQueueChange: writer.changeQueue, shrink, failed: rules.failed };
    session.queue = openSessionQueue(queueDeps, stored_session, wasCut);
  }

  /** Delivers what waited for the client. */
  async function deliverQueue(session: Session, client: Client, deliver: (packet: DeliveredPacket) => Promise<void>) {
    if (session.queue === undefined) return;
    const hasLeft = () => client.closed || session.stream.destroyed;
    for (let isRead = false; !isRead && !hasLeft(); ) {
      // until others forward new messages, they only queue them
      isRead = await peers.waitUntilRead();
      for await (const packet of session.queue.read()) {
        if (hasLeft()) return;
        if ('released' in packet) client.conn.write(generate({ cmd: 'pubrel', messageId: packet.released }));
        else await deliver(toDelivered(packet));
      }
    }
  }

  return {
    async admit(session, { packet, input }) {
      const claimed = await takeOver(session, packet.clean === false);
      if (claimed === undefined) return 'client id in use';
      await openState(session, claimed);
      if (input.gone.aborted) {
        session.stream.destroy();
        return undefined;
      }
      session.inputMemory = countInput(messageMemory, session);
      session.input = filterPackets(session, { packet, input }, { rules, bytes: session.inputMemory });
      const { conn } = session.input;
      sessionByStream.set(conn, session);
      const client = broker.handle(conn);
      const deliver = limitDelivery(client, session, { rules, messageMemory });
      session.openFeed = () => openFeed(session, client, deliver);
      const fail = (error: unknown) => {
        rules.failed(error);
        session.stream.destroy();
      };
      client.once('connected', () => deliverQueue(session, client, deliver).catch(fail));
      return undefined;
    },
    ownersWithSessions: sessions.ownersWithSessions,
    forget: sessions.forget,
    async storeClients() {
      await sessions.storeClean();
      await Promise.all([...live].map((session) => session.will.store(session, peers.id)));
    },
    async apply(change) {
      if (change.kind === 'retained') retained.apply(change.message);
      else if (change.kind === 'forwarded')
        deliverForwarded({ ...change.message, id: change.message.message, retain: false });
      else await sessions.apply(change);
    },
    async publish(messages) {
      for (const message of messages) {
        await Promise.all(await messageStore.store(message));
        emit(message);
      }
    },
    close: () => {
      deviceFeeds.close();
      return new Promise((resolve) => broker.close(resolve));
    },
  };
}

function toDelivered({ message, ...packet }: Exclude<QueuedPacket, { released: number }>): DeliveredPacket {
  const delivered: DeliveredPacket = { ...packet, cmd: 'publish', retain: false };
  setMessageId(delivered, message);
  return delivered;
}

/**
 * Replaces the publishing of aedes: messages are stored before they are acknowledged, so that they only have to reach the
 * subscribers; and no client may subscribe to its own messages about clients.
 * @param onForwarded is called when a message of a client was handed to the subscribers
 */
function forwardDirectly(broker: Aedes, onForwarded: (client: Client | null) => void): void {
  const internals = broker as unknown as { counter: number; mq: { emit(packet: object, done: () => void): void } };
  const forward = (packet: object & { topic: string }, ...rest: unknown[]) => {
    const done = rest.at(-1) as () => void;
    if (packet.topic.startsWith('$')) done();
    else
      internals.mq.emit({ ...packet, dup: false, brokerId: broker.id, brokerCounter: ++internals.counter }, () =>
        done(),
      );
    if (rest.length > 1) onForwarded(rest[0] as Client | null);
  };
  broker.publish = forward as unknown as Aedes['publish'];
}

/** Creates the decision about a subscription; a granted one is recorded in the session and stored. */
function createGrant(rules: BrokerRules, sessions: AccountSessions, peers: Peers) {
  const saves = new WeakMap<Session, () => Promise<void>>();
  /** The filters of a SUBSCRIBE are granted one by one and stored together. */
  function save(session: Session): Promise<void> {
    const saveAll = async () => {
      // what is published elsewhere after SUBACK is to arrive
      if (await sessions.saveSubscriptions(session)) await peers.waitUntilRead();
    };
    const run = saves.get(session) ?? coalesce(saveAll);
    saves.set(session, run);
    return run();
  }

  return async (session: Session | undefined, subscription: Subscription): Promise<boolean> => {
    const { topic, qos } = subscription;
    if (session === undefined || topic === resumedSession) return false;
    if (!(await rules.maySubscribe(session, topic))) return false;
    const { subscriptions } = session;
    const previous = subscriptions.get(topic);
    const isFull = previous === undefined && subscriptions.size >= max_subscriptions;
    if (isFull) return rules.refuseSubscription(session, topic, 'too many');
    subscriptions.set(topic, { levels: topic.split('/'), qos: qos as Qos });
    try {
      await save(session);
      return true;
    } catch (error) {
      rules.failed(error);
      if (previous === undefined) subscriptions.delete(topic);
      else subscriptions.set(topic, previous);
      return false;
    }
  };
}

function filterPackets(
  session: Session,
  { packet, input }: ConnectRequest,
  { rules, bytes }: { rules: BrokerRules; bytes: InputMemory },
): LimitedStream {
  return limitPackets(session.stream, {
    received: removeCredentials(input.release(), packet),
    level: packet.protocolVersion,
    bytes,
    onError: (error) => {
      if (error === 'too_large') rules.dropped(session, { drop: error });
      else rules.protocolError(session, error);
    },
  });
}
