import type { Database } from '../db/database.js';
import { coalesce } from '../lib/coalesce.js';
import type { Shares } from '../lib/shares.js';
import { createConnection, type Host, receive_maximum, topic_alias_maximum } from './connection/connection.js';
import { type ConnackProperties, encodeConnack } from './connection/encode.js';
import { packet_limit_bytes } from './connection/frames.js';
import { createInput, type Input } from './connection/input.js';
import { PacketError, reasons } from './connection/reasons.js';
import type { ConnectRequest } from './protocol/connect-packet.js';
import type { HandlePublish } from './publish-handler.js';
import { createDelivery, type Delivery, type Origin } from './sessions/delivery.js';
import { type DeviceFeed, openDeviceFeed } from './sessions/device-feed.js';
import type { DeviceFeeds } from './sessions/device-feeds.js';
import type { DeviceLink } from './sessions/device-link.js';
import type { Peers } from './sessions/peers.js';
import type { RetainedMessages } from './sessions/retained-messages.js';
import type { Rules } from './sessions/rules.js';
import type { Session } from './sessions/session.js';
import { isOfQueue, openSessionQueue, type StoredQueue } from './sessions/session-queue.js';
import type { StateWriter } from './sessions/state-writer.js';
import { createSubscriptions, type Subscribers } from './sessions/subscriptions.js';
import { findDelay } from './sessions/wills.js';
import { type StoredSubscription, session_ttl_s } from './store/sessions.js';

/** Versions before 5 name no receive maximum. */
const default_receive_maximum = 10_000;

/** State that the brokers of all accounts share. */
export interface BrokerDeps {
  db: Database;
  /** Epoch milliseconds. */
  clock: () => number;
  rules: Rules;
  writer: StateWriter;
  peers: Peers;
  messageMemory: Shares;
  link: DeviceLink;
  /** Has the wills published that are due then. */
  onWillDeferred(due_at: Date): void;
  /** Aborts when the process ends: what its clients leave is stored all at once. */
  stopped: AbortSignal;
}

export interface ClientDeps extends BrokerDeps {
  deviceFeeds: DeviceFeeds;
  retained: RetainedMessages;
  subscribers: Subscribers;
  /** Clients of this process by client id. */
  clients: Map<string, Delivery>;
  handlePublish: HandlePublish;
  /** Stores the subscriptions of a session, which may get a queue by them. @throws what the database throws */
  saveSubscriptions(session: Session, onQueue: (queue: StoredQueue) => void): Promise<void>;
}

/** A client that is logged in, before its CONNACK. */
export type Client = ReturnType<typeof openClient>;

/** Connects the protocol of one connection with the broker of its account. */
export function openClient(session: Session, deps: ClientDeps) {
  const { rules, link, messageMemory, handlePublish, stopped, subscribers, retained, deviceFeeds } = deps;
  const { outbox, connect } = session;
  const { level, keep_alive_s, properties, will } = connect;
  const { max_packet_bytes = Number.POSITIVE_INFINITY } = properties;
  let input: Input | undefined;
  let received_at = performance.now();
  let hasDisconnected = false;

  const host: Host<Origin> = {
    write: outbox.push,
    publish: (packet) => handlePublish(session, packet),
    release: async (packet_id) => (await endUnlessStored(() => session.received?.release(packet_id))) ?? false,
    subscribe: (packet, granted) => subscriptions.subscribe(packet, granted),
    unsubscribe: (filters) => subscriptions.unsubscribe(filters),
    async received(packet_id, { origin }) {
      if (isOfQueue(origin)) await endUnlessStored(() => session.queue?.receive(origin, packet_id));
    },
    acknowledged({ origin }) {
      if (isOfQueue(origin)) session.queue?.remove(origin);
      else if (origin !== undefined && 'command' in origin) subscriptions.acknowledge(origin.command);
    },
    hasRoom: () => delivery.onRoom(),
    disconnect({ reason, properties: { session_expiry_s } }) {
      if (session_expiry_s !== undefined) {
        if (session.expiry_s === 0 && session_expiry_s > 0)
          throw new PacketError('a session without expiry gets one', reasons.protocol_error);
        session.expiry_s = Math.min(session_expiry_s, session_ttl_s);
      }
      hasDisconnected = reason === reasons.success;
      leave(() => outbox.close());
    },
    fail({ message, reason }) {
      rules.protocolError(session, message);
      session.leave(reason);
    },
  };
  const connection = createConnection<Origin>(
    {
      level,
      receive_maximum: properties.receive_maximum ?? default_receive_maximum,
      max_packet_bytes,
      topic_alias_maximum: properties.topic_alias_maximum ?? 0,
      wants_problem_information: properties.wants_problem_information !== 0,
    },
    host,
  );
  const delivery = createDelivery(session, connection, deps);
  const subscriptions = createSubscriptions({
    // not all that deps has: such an object gets a hidden class of its own for each connection
    session,
    delivery,
    rules,
    subscribers,
    retained,
    deviceFeeds,
    save: coalesce(() => deps.saveSubscriptions(session, openQueue)),
    openFeed() {
      const { load: loadCommand, wake } = deviceFeeds.commands;
      const feed: DeviceFeed = openDeviceFeed({
        ...{ link, session, messageMemory, loadCommand, deliver: delivery.deliverStored, failed: rules.failed },
        wakeCommands: (device) => wake(device, { feed }),
      });
      return feed;
    },
  });

  /** The client sends PUBREC and PUBREL again on its next connection, and would wait for an answer on this one. */
  async function endUnlessStored<Result>(store: () => Promise<Result> | undefined): Promise<Result | undefined> {
    try {
      return await store();
    } catch (error) {
      rules.failed(error);
      session.end(reasons.busy);
      throw error;
    }
  }

  function openQueue(queue: StoredQueue): void {
    session.queue = openSessionQueue({ ...queue, unacknowledged: () => connection.unacknowledged });
  }

  /** Ends the connection once the messages so far are stored, handed to the subscribers and acknowledged. */
  function leave(end: () => void): void {
    delivery.stop();
    const flush = () => void outbox.flush().then(end, end);
    if (input === undefined) flush();
    else input.stop(flush);
  }

  function watchSilence(): void {
    if (keep_alive_s === 0) return;
    const limit_ms = keep_alive_s * 1500;
    const check = () => {
      const rest_ms = limit_ms - (performance.now() - received_at);
      if (rest_ms <= 0) session.end(reasons.keep_alive);
      else timer = setTimeout(check, rest_ms).unref();
    };
    let timer = setTimeout(check, limit_ms).unref();
    outbox.ended.then(() => clearTimeout(timer), rules.failed);
  }

  async function endWill(): Promise<void> {
    const isOwn = await session.will.take();
    if (!isOwn || hasDisconnected || will === undefined || stopped.aborted) return;
    const delay_s = findDelay(will, session);
    if (delay_s === 0 || session.revoked) return void handlePublish(session, will).catch(rules.failed);
    const due_at = new Date(deps.clock() + delay_s * 1000);
    await session.will.defer(session, due_at);
    deps.onWillDeferred(due_at);
  }

  function close(): void {
    delivery.stop();
    subscriptions.close();
    if (deps.clients.get(session.client_id) === delivery) deps.clients.delete(session.client_id);
    input?.close();
  }

  return {
    /** Opens the queue of a persistent session, and grants again what it has subscribed to. */
    async resume(queue: StoredQueue, stored: readonly StoredSubscription[]): Promise<void> {
      openQueue(queue);
      if (stored.length > 0) await subscriptions.restore(stored);
    },
    /** Sends CONNACK, and handles what the client has sent and sends from now on. */
    start({ stream, input: pending }: ConnectRequest, isPresent: boolean) {
      const connack = encodeConnack(isPresent, level === 5 ? describeBroker(session) : undefined);
      if (connack.length > max_packet_bytes) session.end(reasons.too_large);
      if (!outbox.isOpen()) return;
      session.isConnected = true;
      outbox.push(connack);
      session.endWill = endWill;
      session.leave = (reason) => leave(() => session.end(reason));
      outbox.ended.then(close, rules.failed);
      deps.clients.set(session.client_id, delivery);
      subscriptions.start();
      delivery.deliverQueue(deps.peers.waitUntilRead).catch((error: unknown) => {
        rules.failed(error);
        session.end(reasons.busy);
      });
      input = createInput(stream, {
        shares: messageMemory,
        sender: session,
        handle(packet) {
          received_at = performance.now();
          return connection.handle(packet);
        },
        onError(error) {
          if (error === 'too_large') rules.dropped(session, { drop: error });
          else rules.protocolError(session, error);
          session.leave(error === 'too_large' ? reasons.too_large : reasons.malformed);
        },
        onLeft: () => leave(() => outbox.close()),
      });
      watchSilence();
      input.start(pending.release());
    },
  };
}

/** The broker and the session as a CONNACK of MQTT 5 describes them. */
function describeBroker({ client_id, connection, expiry_s, connect }: Session): ConnackProperties {
  return {
    receive_maximum,
    max_packet_bytes: packet_limit_bytes,
    topic_alias_maximum,
    assigned_client_id: client_id === connection ? client_id : undefined,
    session_expiry_s: (connect.properties.session_expiry_s ?? 0) > expiry_s ? expiry_s : undefined,
  };
}
