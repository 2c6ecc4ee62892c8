import { coalesce } from '../lib/coalesce.js';
import type { Shares } from '../lib/shares.js';
import { createConnection, type Host } from './connection/connection.js';
import { encodeConnack } from './connection/encode.js';
import { createInput, type Input } from './connection/input.js';
import { reasons } from './connection/reasons.js';
import type { DeviceLink } from './device-link.js';
import type { ConnectRequest } from './protocol/connect-packet.js';
import type { HandlePublish, PublishRules } from './publish-handler.js';
import { createDelivery, type Origin } from './sessions/delivery.js';
import { openDeviceFeed } from './sessions/device-feed.js';
import type { DeviceFeeds } from './sessions/device-feeds.js';
import { countInput } from './sessions/message-memory.js';
import type { RetainedMessages } from './sessions/retained-messages.js';
import type { Session } from './sessions/session.js';
import { isOfQueue, openSessionQueue } from './sessions/session-queue.js';
import { createSubscriptions, type Subscribers, type SubscriptionRules } from './sessions/subscriptions.js';
import type { StoredSubscription } from './store/sessions.js';

/** Versions before 5 name no receive maximum. */
const default_receive_maximum = 10_000;

/** Decisions about the messages of a session. */
export interface ClientRules extends PublishRules, SubscriptionRules {
  isFresh(session: Session): boolean;
}

export interface ClientDeps {
  rules: ClientRules;
  messageMemory: Shares;
  link: DeviceLink;
  deviceFeeds: DeviceFeeds;
  retained: RetainedMessages;
  subscribers: Subscribers;
  handlePublish: HandlePublish;
  /** Stores the subscriptions of a session. @throws what the database throws */
  saveSubscriptions(session: Session): Promise<void>;
  /** Waits until other instances only queue what is new. */
  waitUntilRead(): Promise<boolean>;
  /** Aborts when the process ends: no wills are published then. */
  stopped: AbortSignal;
}

/** A persistent session of the client. */
interface Persistent {
  queue: Omit<Parameters<typeof openSessionQueue>[0], 'unacknowledged'>;
  /** Names the session. */
  session: string;
  wasCut: boolean;
  /** Absent if the session is new. */
  subscriptions: readonly StoredSubscription[] | undefined;
}

/** A client that is logged in, before its CONNACK. */
export interface Client {
  /** Opens the queue of a persistent session, and grants its subscriptions again. */
  resume(persistent: Persistent): Promise<void>;
  /** Sends CONNACK, and handles what the client has sent and sends from now on. */
  start(request: ConnectRequest, isPresent: boolean): void;
}

/** Connects the protocol of one connection with the broker of its account. */
export function openClient(session: Session, deps: ClientDeps): Client {
  const { rules, link, messageMemory, handlePublish, stopped } = deps;
  const { outbox, connect } = session;
  const { level, keep_alive_s, properties, will } = connect;
  const memory = countInput(messageMemory, session);
  let input: Input | undefined;
  let received_at = performance.now();
  let hasDisconnected = false;

  const host: Host<Origin> = {
    write: outbox.push,
    publish: (packet) => handlePublish(session, packet),
    release: async (packet_id) => (await session.received?.release(packet_id)) ?? false,
    subscribe: (packet, granted) => subscriptions.subscribe(packet, granted),
    unsubscribe: (filters) => subscriptions.unsubscribe(filters),
    async received(packet_id, { origin }) {
      if (isOfQueue(origin)) await session.queue?.receive(origin, packet_id);
    },
    acknowledged({ origin }) {
      if (isOfQueue(origin)) session.queue?.remove(origin);
      else if (origin !== undefined) subscriptions.feed?.acknowledge(origin.command);
    },
    hasRoom: () => delivery.onRoom(),
    disconnect() {
      hasDisconnected = true;
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
      max_packet_bytes: properties.max_packet_bytes ?? Number.POSITIVE_INFINITY,
      wants_problem_information: properties.wants_problem_information !== 0,
    },
    host,
  );
  const delivery = createDelivery(session, connection, { rules, messageMemory });
  const subscriptions = createSubscriptions({
    ...deps,
    session,
    delivery,
    save: coalesce(() => deps.saveSubscriptions(session)),
    openFeed: () => openDeviceFeed({ link, session, deliver: delivery.deliverStored, failed: rules.failed }),
  });

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

  async function publishWill(): Promise<void> {
    if (hasDisconnected || will === undefined || stopped.aborted) return;
    const isOwn = await session.will.take();
    if (isOwn && !stopped.aborted) await handlePublish(session, will);
  }

  function close(): void {
    delivery.stop();
    subscriptions.close();
    input?.stop(() => undefined);
    memory.close();
    publishWill().catch(rules.failed);
  }

  return {
    async resume({ queue, session: name, wasCut, subscriptions: stored }) {
      const unacknowledged = () => connection.unacknowledged;
      session.queue = openSessionQueue({ ...queue, unacknowledged }, name, wasCut);
      if (stored !== undefined) await subscriptions.restore(stored);
    },
    start({ stream, input: pending }, isPresent) {
      if (!outbox.isOpen) return memory.close();
      session.isConnected = true;
      outbox.push(encodeConnack(isPresent));
      session.leave = (reason) => leave(() => session.end(reason));
      outbox.ended.then(close, rules.failed);
      subscriptions.start();
      delivery.deliverQueue(deps.waitUntilRead).catch((error: unknown) => {
        rules.failed(error);
        session.end(reasons.busy);
      });
      input = createInput(stream, {
        memory,
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
