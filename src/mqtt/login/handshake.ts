import type { Duplex } from 'node:stream';
import { coalesce } from '../../lib/coalesce.js';
import { awaitLater } from '../../lib/promises.js';
import type { LogLine } from '../../lib/rate-limited-log.js';
import { encodeDisconnect } from '../connection/encode.js';
import { findPublishes } from '../connection/frames.js';
import { Outbox } from '../connection/outbox.js';
import type { ConnectPacket } from '../connection/packets.js';
import { type Reason, reasons } from '../connection/reasons.js';
import { type ConnectRequest, type Refusal, readConnect, refuseConnection } from '../protocol/connect-packet.js';
import { isTopic } from '../protocol/topics.js';
import type { BrokerDeps } from '../sessions/broker-deps.js';
import type { ConnectionList } from '../sessions/connection-list.js';
import type { DropReason } from '../sessions/ingest.js';
import { describeConnect, describeOwner, formatName } from '../sessions/login-names.js';
import type { LoggedIn } from '../sessions/permissions.js';
import type { Session } from '../sessions/session.js';
import { SessionWill } from '../sessions/wills.js';
import { createRandomId } from '../store/keys.js';
import { session_ttl_s } from '../store/sessions.js';
import { findCertifiedDevice } from './client-certificate.js';
import { describeFailure, type LoginDeps, logIn, ownerOfClientIds, type RefusedLogin } from './login.js';
import { createLoginQueue, type LoginQueue } from './login-queue.js';
import type { SessionAuthorizer } from './session-authorizer.js';

interface Options extends LoginDeps, Pick<BrokerDeps, 'rules' | 'peers' | 'stopped'> {
  warn: LogLine;
  metrics: { connections(count: number): void; dropped(reason: DropReason): void; refused(reason: Refusal): void };
  /** All live sessions; the handshake adds and removes them. */
  sessions: Set<Session>;
  authorizer: SessionAuthorizer;
  /** Hands a session to the broker of its account. @returns the reason of a refusal. @throws what the database throws */
  admit(session: Session, request: ConnectRequest): Promise<Refusal | undefined>;
  connections: ConnectionList;
}

interface NewConnection {
  ip: string;
  request: ConnectRequest;
}

const max_unauthenticated_bytes = 64 * 1024 * 1024;
const max_client_id_length = 256;

/**
 * Creates the handler of new connections, which reads CONNECT, logs the client in and hands the connection to the broker
 * of its account. It rejects when the connection is to be closed without a CONNACK.
 */
export function createHandshake(options: Options): (stream: Duplex, ip: string) => Promise<void> {
  const { warn, metrics } = options;
  const loginQueue = createLoginQueue();
  let unauthenticated_bytes = 0;

  /** @returns the refusal of the client. @throws Error if it is gone */
  async function admit(connection: NewConnection): Promise<RefusedLogin | undefined> {
    const { ip, request } = connection;
    const { packet, input } = request;
    const read_at = { checked: performance.now(), topics_read_at: options.clock() / 1000 };
    const refusal = validateConnect(packet);
    const login = refusal === undefined ? await attemptLogin(options, loginQueue, connection) : { refusal };
    input.gone.throwIfAborted();
    if ('refusal' in login) return login;
    let session: Session | undefined;
    try {
      await options.peers.waitUntilJoined();
      if (options.stopped.aborted) return { refusal: 'unavailable' };
      session = openSession(options, { ...connection, login, read_at });
      const refusal = await options.admit(session, request);
      if (refusal === undefined) {
        options.connections.add(session, ip, options.clock() / 1000);
        return undefined;
      }
      session.outbox.abandon();
      return { refusal, ...session.names };
    } catch (err) {
      session?.outbox.abandon();
      return { refusal: 'unavailable', err };
    }
  }

  return async (stream, ip) => {
    let reserved_bytes = 0;
    const reserve = (bytes: number) => {
      reserved_bytes += bytes;
      unauthenticated_bytes += bytes;
      return unauthenticated_bytes <= max_unauthenticated_bytes;
    };
    try {
      const request = await readConnect(stream, reserve);
      const refuse = ({ refusal, ...names }: RefusedLogin, level = 4) => {
        metrics.refused(refusal);
        // an outage refuses all clients at once
        const name = refusal === 'unavailable' ? '' : formatName({ ip, ...names });
        warn(`MQTT login refused: ${refusal}`, { reason: refusal, ip, ...names }, name);
        refuseConnection(stream, refusal, level);
      };
      if ('unsupported_level' in request) return refuse({ refusal: 'version' }, request.unsupported_level);
      const refused = await admit({ ip, request });
      if (refused === undefined) return;
      for (const _ of findPublishes(request.input.release()))
        metrics.dropped(refused.refusal === 'unavailable' ? 'database' : 'not_allowed');
      refuse({ ...refused, ...describeConnect(request.packet, refused) }, request.packet.level);
    } finally {
      unauthenticated_bytes -= reserved_bytes;
    }
  };
}

/** @returns the reason to refuse the connection before the login, or undefined */
function validateConnect({ level, client_id, clean, will, properties }: ConnectPacket): Refusal | undefined {
  if (properties.authentication_method !== undefined) return 'authentication method';
  if (client_id.length > max_client_id_length) return 'client id';
  if (client_id === '' && (level === 3 || (level === 4 && !clean))) return 'client id';
  if (will !== undefined && !isTopic(will.topic)) return 'will';
  return undefined;
}

async function attemptLogin(
  options: Options,
  queue: LoginQueue,
  { ip, request: { stream, packet, input } }: NewConnection,
): Promise<RefusedLogin | LoggedIn> {
  const { username, password } = packet;
  const { gone: signal } = input;
  const certified = findCertifiedDevice(stream);
  const login = { username, password: password.toString(), certified, signal };
  try {
    return await queue.run({ address: ip, username: certified ?? username, signal }, () => logIn(options, login));
  } catch (error) {
    return describeFailure(error);
  }
}

/** One for all sessions: each promise of an idle connection takes memory. */
const settled = Promise.resolve();

interface NewSession extends NewConnection {
  login: LoggedIn;
  read_at: Pick<Session, 'checked' | 'topics_read_at'>;
}

function openSession(
  { db, sessions, metrics, authorizer, rules, warn }: Options,
  { ip, request: { stream, packet }, login, read_at }: NewSession,
): Session {
  const connection = createRandomId();
  const { level, clean, keep_alive_s, properties, will } = packet;
  const outbox = new Outbox(stream, () => {
    rules.protocolError(session, 'it does not read');
    end(reasons.quota);
  });
  const end = (reason: Reason) =>
    outbox.close(level === 5 && session.isConnected ? encodeDisconnect(reason) : undefined);
  const session: Session = {
    ...login,
    ...read_at,
    client_id_owner: ownerOfClientIds(login),
    names: describeConnect(packet, { ...describeOwner(login), ip }),
    client_id: packet.client_id || connection,
    connection,
    connect: { level, keep_alive_s, properties, will },
    outbox,
    left: awaitLater(leave()),
    revoked: false,
    expiry_s: level === 5 ? Math.min(properties.session_expiry_s ?? 0, session_ttl_s) : clean ? 0 : session_ttl_s,
    isConnected: false,
    publishQueue: settled,
    subscriptions: new Map(),
    storeQueue: settled,
    queue: undefined,
    will: new SessionWill(db, connection, will),
    endWill: () => session.will.take(),
    received: undefined,
    counts: { messages: 0, drops: 0 },
    refresh: coalesce(() => authorizer.refresh(session)),
    end,
    leave: end,
  };
  sessions.add(session);
  metrics.connections(sessions.size);
  return session;

  async function leave(): Promise<void> {
    await outbox.ended;
    sessions.delete(session);
    metrics.connections(sessions.size);
    try {
      // what the client has sent ends before it may send it again: of QoS 2, both would be handed over
      await session.publishQueue;
      await Promise.all([session.queue?.close(), session.endWill()]);
    } catch (error) {
      warn('MQTT session could not be closed', { err: error });
    }
  }
}
