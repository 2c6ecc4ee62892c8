import type { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { Aedes, type Client, type Subscription } from 'aedes';
import { createClientIds } from './client-ids.js';
import type { ConnectRequest, Refusal } from './connect-packet.js';
import { limitDeliveryQos, unlimited_qos } from './delivery.js';
import { limitPackets } from './packet-limits.js';
import { canReceive } from './permissions.js';
import { openSessionStore, resumedSession, type SessionStore } from './persistence.js';
import { createPublishHandler, type PublishRules } from './publish-handler.js';
import type { Qos, Session } from './session.js';

const max_subscriptions = 100;
const drain_ms = 5000;

/** Decisions about the messages of a session. */
export interface BrokerRules extends PublishRules {
  maySubscribe(session: Session, filter: string): Promise<boolean>;
  isFresh(session: Session): boolean;
}

/** The topics, sessions and client ids of one account. */
export interface AccountBroker {
  /** Serves a session after the previous one with its client id has ended. @returns the reason of a refusal */
  admit(session: Session, request: ConnectRequest): Promise<Refusal | undefined>;
  /** Owners of persistent sessions without a connection. */
  ownersWithSessions(): readonly string[];
  /** Deletes the persistent sessions of an owner that have no connection. */
  forget(owner: string): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the broker of an account. Messages, retained messages, sessions and client ids of different accounts never meet,
 * because each account has a broker of its own (reference/mqtt.md#broker).
 */
export async function openAccountBroker(rules: BrokerRules): Promise<AccountBroker> {
  const sessions = new WeakMap<object, Session>();
  const sessionOf = (client: Client | null) => (client === null ? undefined : sessions.get(client.conn));

  const broker = await Aedes.createBroker({
    drainTimeout: drain_ms,
    queueLimit: 2000,
    maxInflightInbound: 100,
    authenticate(client, _username, _password, done) {
      const session = sessionOf(client);
      done(null, session !== undefined && (session.client_id === '' || session.client_id === client.id));
    },
    authorizePublish(client, packet, done) {
      const session = sessionOf(client);
      if (client === null || session === undefined) done(new Error('no session'));
      else handlePublish(client, session, packet, done);
    },
    authorizeSubscribe(client, subscription, done) {
      void grant(sessionOf(client), subscription).then((isGranted) =>
        done(null, isGranted ? { ...subscription, qos: unlimited_qos } : null),
      );
    },
    authorizeForward(client, packet) {
      const session = sessionOf(client);
      if (session === undefined || session.revoked || !rules.isFresh(session)) return null;
      return canReceive(session.permissions, packet.topic) ? packet : null;
    },
  });
  broker.on('unsubscribe', (filters, client) => {
    const session = sessionOf(client);
    for (const filter of filters) session?.subscriptions.delete(filter);
  });
  (broker as EventEmitter).on('error', rules.failed);
  const store = openSessionStore(broker, (reason) => rules.dropped(undefined, { drop: reason }));
  const handlePublish = createPublishHandler(broker, store, rules);
  const grant = createGrant(rules, store);
  const clientIds = createClientIds((client_id) => store.deleteSession(client_id));

  /** Closes the previous connections of the client id. @returns false if the id belongs to another owner */
  async function takeOver(session: Session, isPersistent: boolean): Promise<boolean> {
    const bound = clientIds.bind(session, isPersistent);
    if (bound === undefined) return false;
    const { previous, isResumed } = bound;
    store.setResumed(session.client_id, isResumed);
    void session.ended.then(() => clientIds.leave(session));
    for (const { stream } of previous) stream.destroy();
    await Promise.all(previous.map(({ ended }) => ended));
    return true;
  }

  return {
    async admit(session, { packet, input }) {
      if (session.client_id !== '' && !(await takeOver(session, packet.clean === false))) return 'identifier';
      if (input.gone.aborted) {
        session.stream.destroy();
        return undefined;
      }
      const conn = filterPackets(session, { packet, input }, rules);
      sessions.set(conn, session);
      limitDeliveryQos(broker.handle(conn), session);
      return undefined;
    },
    ownersWithSessions: () => clientIds.ownersWithSessions(),
    forget: (owner) => clientIds.forget(owner),
    close: () => new Promise((resolve) => broker.close(resolve)),
  };
}

/** Creates the decision about a subscription; a granted one is recorded in the session and the store. */
function createGrant(rules: BrokerRules, store: SessionStore) {
  return async (session: Session | undefined, subscription: Subscription): Promise<boolean> => {
    const { topic, qos } = subscription;
    if (session === undefined || topic === resumedSession) return false;
    const isAllowed = await rules.maySubscribe(session, topic);
    const { subscriptions } = session;
    if (!isAllowed || (!subscriptions.has(topic) && subscriptions.size >= max_subscriptions)) return false;
    subscriptions.set(topic, { levels: topic.split('/'), qos: qos as Qos });
    store.grant(subscription);
    return true;
  };
}

function filterPackets(session: Session, { packet, input }: ConnectRequest, rules: BrokerRules): Duplex {
  return limitPackets(session.stream, {
    received: input.release(),
    level: packet.protocolVersion,
    onError: (error) => {
      if (error === 'too_large') rules.dropped(session, { drop: error });
      else rules.protocolError(session, error);
    },
  });
}
