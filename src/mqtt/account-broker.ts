import type { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { Aedes, type Client, type PublishPacket, type Subscription } from 'aedes';
import type { DropReason, Message, PublishResult } from './ingest.js';
import { type ConnectRequest, limitPackets, type Refusal } from './packet-limits.js';
import { mayReceive, type Permissions } from './permissions.js';
import { boundSessions } from './persistence.js';

const most_subscriptions = 100;
const most_lasting = 10;
const drain_ms = 5000;
/** Subscribers cannot reach it, not even those that come back. */
const nowhere = '$SYS/nowhere';

/** A connection that has logged in. */
export interface Session {
  readonly account: string;
  /** The credentials or the key that it logged in with. */
  readonly owner: string;
  readonly client_id: string;
  readonly stream: Duplex;
  /** Resolved when the broker has finished with it. */
  readonly ended: Promise<void>;
  permissions: Permissions;
  /** When `rights` were read, in milliseconds of the process; nothing is allowed on old ones. */
  checked: number;
  /** It may do nothing more, and leaves no will. */
  revoked: boolean;
  /** Settled when all its publishes up to now are. */
  turn: Promise<void>;
  subscriptions: Set<string>;
  /** Reads `rights` again. @throws what the database throws */
  refresh(): Promise<void>;
}

/** What decides about the messages of a session. */
export interface Rules {
  /** Stores what is to be stored. Never rejects. */
  publish(session: Session, message: Message): Promise<PublishResult>;
  maySubscribe(session: Session, filter: string): Promise<boolean>;
  isFresh(session: Session): boolean;
  dropped(session: Session | undefined, reason: DropReason, error?: unknown): void;
  published(): void;
  /** Something went wrong that nobody waits for. */
  failed(error: unknown): void;
}

/** The topics, sessions and client ids of one account. */
export interface AccountBroker {
  /** Takes a session in, after the one before under its client id has ended. @returns why not, or undefined */
  admit(session: Session, opening: ConnectRequest): Promise<Refusal | undefined>;
  /** Who left sessions behind. */
  lasting(): readonly string[];
  /** Forgets the sessions that `owner` left behind. */
  forget(owner: string): Promise<void>;
  close(): Promise<void>;
}

interface Binding {
  owner: string;
  live: Set<Session>;
  lasting: boolean;
}

/**
 * Every account has a broker of its own: messages, retained ones, sessions and client ids of different accounts never
 * meet (contract 9). `rules` decide on the rest.
 */
export async function openAccountBroker(rules: Rules): Promise<AccountBroker> {
  const sessions = new WeakMap<object, Session>();
  const bindings = new Map<string, Binding>();
  const left = new Map<string, Set<string>>();

  const sessionOf = (client: Client | null) => (client === null ? undefined : sessions.get(client.conn));

  const broker = await Aedes.createBroker({
    drainTimeout: drain_ms,
    queueLimit: 2000,
    maxInflightInbound: 100,
    authenticate(client, _username, _password, done) {
      const session = sessionOf(client);
      const known = session !== undefined && (session.client_id === '' || session.client_id === client.id);
      done(null, known);
    },
    authorizePublish(client, packet, done) {
      const session = sessionOf(client);
      if (client === null || session === undefined) return done(new Error('no session'));
      const decided = decide(client, session, packet);
      // stored together, but acknowledged and passed on in the order in which they came
      session.turn = session.turn
        .then(() => decided)
        .then((verdict) => act(session, packet, verdict))
        .then(() => done(), done)
        .catch(rules.failed);
    },
    authorizeSubscribe(client, subscription, done) {
      void grant(client, subscription).then((granted) => done(null, granted ? subscription : null));
    },
    authorizeForward(client, packet) {
      const session = sessionOf(client);
      if (session === undefined || session.revoked || !rules.isFresh(session)) return null;
      return mayReceive(session.permissions, packet.topic) ? packet : null;
    },
  });
  broker.on('unsubscribe', (filters, client) => {
    const session = sessionOf(client);
    for (const filter of filters) session?.subscriptions.delete(filter);
  });
  (broker as EventEmitter).on('error', rules.failed);
  const kept = boundSessions(broker, (reason) => rules.dropped(undefined, reason));

  async function decide(client: Client, session: Session, packet: PublishPacket): Promise<PublishResult> {
    const again = packet.qos === 2 && (await kept.incomingGetPacket(client, packet).catch(() => undefined));
    if (again) return { forward: 'itself' };
    const payload = typeof packet.payload === 'string' ? Buffer.from(packet.payload) : packet.payload;
    return rules.publish(session, { topic: packet.topic, payload });
  }

  /** @throws Error where an acknowledgement would be a lie: without one the client sends it again */
  function act(session: Session, packet: PublishPacket, verdict: PublishResult): void {
    if ('drop' in verdict) {
      rules.dropped(session, verdict.drop, verdict.error);
      if (session.revoked || (verdict.drop === 'database' && packet.qos > 0)) throw new Error(verdict.drop);
      // no stream, but the only way to take a retained one away
      if (verdict.drop === 'invalid' && packet.retain && packet.payload.length === 0) void kept.storeRetained(packet);
    } else {
      rules.published();
      if (verdict.forward === 'itself') return;
      const { qos, retain } = packet;
      for (const message of verdict.forward)
        broker.publish({ cmd: 'publish', dup: false, qos, retain, ...message }, () => undefined);
    }
    packet.topic = nowhere;
    packet.payload = Buffer.alloc(0);
    packet.retain = false;
  }

  async function grant(client: Client, subscription: Subscription): Promise<boolean> {
    const session = sessionOf(client);
    if (session === undefined) return false;
    const { topic } = subscription;
    const granted = await rules.maySubscribe(session, topic);
    const { subscriptions } = session;
    if (!granted || (!subscriptions.has(topic) && subscriptions.size >= most_subscriptions)) return false;
    subscriptions.add(topic);
    kept.grant(subscription);
    return true;
  }

  function leave(session: Session, binding: Binding): void {
    binding.live.delete(session);
    if (binding.live.size > 0) return;
    if (!binding.lasting) {
      bindings.delete(session.client_id);
      return;
    }
    const ids = left.get(session.owner) ?? new Set<string>();
    left.set(session.owner, ids.add(session.client_id));
    const [oldest] = ids;
    if (ids.size > most_lasting && oldest !== undefined) void forgetSession(session.owner, oldest);
  }

  function isBack(owner: string, client_id: string): void {
    const ids = left.get(owner);
    ids?.delete(client_id);
    if (ids?.size === 0) left.delete(owner);
  }

  async function forgetSession(owner: string, client_id: string): Promise<void> {
    isBack(owner, client_id);
    bindings.delete(client_id);
    await kept.forget(client_id);
  }

  /** @returns undefined if others use the client id */
  function bind(session: Session, clean: boolean): { binding: Binding; before: Session[] } | undefined {
    const { client_id, owner } = session;
    const binding = bindings.get(client_id) ?? { owner, live: new Set<Session>(), lasting: false };
    if (binding.owner !== owner) return undefined;
    bindings.set(client_id, binding);
    isBack(owner, client_id);
    const before = [...binding.live];
    binding.live.add(session);
    binding.lasting = !clean;
    return { binding, before };
  }

  return {
    async admit(session, { packet, bytes }) {
      if (session.client_id !== '') {
        const bound = bind(session, packet.clean !== false);
        if (bound === undefined) return 'identifier';
        void session.ended.then(() => leave(session, bound.binding));
        for (const { stream } of bound.before) stream.destroy();
        await Promise.all(bound.before.map(({ ended }) => ended));
      }
      if (session.stream.destroyed) return undefined;
      const conn = limitPackets(session.stream, bytes, () => rules.dropped(session, 'too_large'));
      sessions.set(conn, session);
      broker.handle(conn);
      return undefined;
    },
    lasting: () => [...left.keys()],
    async forget(owner) {
      for (const client_id of [...(left.get(owner) ?? [])]) await forgetSession(owner, client_id);
    },
    close: () => new Promise((resolve) => broker.close(resolve)),
  };
}

/** Resolved when a stream has closed and the broker has had its turns to take note. */
export async function endOf(stream: Duplex): Promise<void> {
  if (!stream.closed) await new Promise((resolve) => stream.once('close', resolve));
  for (let turns = 0; turns < 3; turns++) await turn();
}
