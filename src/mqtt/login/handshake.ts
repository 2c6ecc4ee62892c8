import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { IConnectPacket } from 'mqtt-packet';
import { coalesce } from '../../lib/coalesce.js';
import { awaitLater } from '../../lib/promises.js';
import type { LogLine } from '../../lib/rate-limited-log.js';
import type { AccountBrokers } from '../account-brokers.js';
import type { DropReason } from '../ingest.js';
import { type ConnectRequest, type Refusal, readConnect, refuseConnection } from '../protocol/connect-packet.js';
import { findPublishes } from '../protocol/packet-limits.js';
import { isTopic } from '../protocol/topics.js';
import type { ConnectionList } from '../sessions/connection-list.js';
import { type Session, waitForEnd } from '../sessions/session.js';
import { createWill } from '../sessions/wills.js';
import { findCertifiedDevice } from './client-certificate.js';
import { type LoggedIn, type LoginDeps, logIn, type RefusedLogin } from './login.js';
import { describeConnect, describeOwner, formatName } from './login-names.js';
import { createLoginQueue, type LoginQueue, QueueFullError } from './login-queue.js';
import type { SessionAuthorizer } from './session-authorizer.js';

interface Options extends LoginDeps {
  warn: LogLine;
  metrics: { connections(count: number): void; dropped(reason: DropReason): void; refused(reason: Refusal): void };
  /** All live sessions; the handshake adds and removes them. */
  sessions: Set<Session>;
  authorizer: SessionAuthorizer;
  brokers: AccountBrokers;
  connections: ConnectionList;
  /** Waits until other instances know this one. */
  waitUntilJoined(): Promise<void>;
  stopped: AbortSignal;
}

interface NewConnection {
  stream: Duplex;
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
    const checked = performance.now();
    const refusal = validateConnect(packet);
    const login = refusal === undefined ? await attemptLogin(options, loginQueue, connection) : { refusal };
    input.gone.throwIfAborted();
    if ('refusal' in login) return login;
    try {
      await options.waitUntilJoined();
      if (options.stopped.aborted) return { refusal: 'unavailable' };
      const session = openSession(options, { ...connection, login, checked, admitted: () => admitted });
      const enter = async () => (await options.brokers.of(login.account)).admit(session, request);
      const admitted = awaitLater(enter());
      const refusal = await admitted;
      if (refusal !== undefined) return { refusal, ...session.names };
      options.connections.add(session, ip, options.clock() / 1000);
      return undefined;
    } catch (err) {
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
      const refused = await admit({ stream, ip, request });
      if (refused === undefined) return;
      for (const _ of findPublishes(request.input.release()))
        metrics.dropped(refused.refusal === 'unavailable' ? 'database' : 'not_allowed');
      refuse({ ...refused, ...describeConnect(request.packet, refused) });
    } finally {
      unauthenticated_bytes -= reserved_bytes;
    }
  };
}

/** @returns the reason to refuse the connection before the login, or undefined */
function validateConnect({ protocolVersion, clientId, clean, will }: IConnectPacket): Refusal | undefined {
  if (clientId.length > max_client_id_length) return 'client id';
  if (clientId === '' && (protocolVersion === 3 || clean === false)) return 'client id';
  if (will !== undefined && ((will.qos ?? 0) > 2 || !isTopic(will.topic))) return 'will';
  return undefined;
}

async function attemptLogin(
  options: Options,
  queue: LoginQueue,
  { stream, ip, request: { packet, input } }: NewConnection,
): Promise<RefusedLogin | LoggedIn> {
  const { username = '', password = '' } = packet;
  const { gone: signal } = input;
  const certified = findCertifiedDevice(stream);
  const login = { username, password: password.toString(), certified, signal };
  try {
    return await queue.run({ address: ip, username: certified ?? username, signal }, () => logIn(options, login));
  } catch (error) {
    return error instanceof QueueFullError
      ? { refusal: 'overloaded', detail: error.message }
      : { refusal: 'unavailable', err: error };
  }
}

interface NewSession extends NewConnection {
  login: LoggedIn;
  checked: number;
  /** Settles when the broker serves the session, or does not. */
  admitted(): Promise<unknown>;
}

function openSession(
  { db, sessions, metrics, authorizer, warn }: Options,
  { stream, ip, request: { packet }, login, checked, admitted }: NewSession,
): Session {
  const connection = randomUUID();
  const connOf = async () => {
    await admitted().catch(() => undefined);
    return session.input?.conn;
  };
  const ended = awaitLater(waitForEnd(stream, connOf));
  const session: Session = {
    ...login,
    names: describeConnect(packet, { ...describeOwner(login), ip }),
    client_id: packet.clientId || connection,
    hasClientId: packet.clientId !== '',
    connection,
    stream,
    input: undefined,
    checked,
    ended,
    left: awaitLater(leave().catch((error: unknown) => warn('MQTT session could not be closed', { err: error }))),
    revoked: false,
    publishQueue: Promise.resolve(),
    subscriptions: new Map(),
    storeQueue: Promise.resolve(),
    inputMemory: undefined,
    isResumed: false,
    queue: undefined,
    deviceFeed: undefined,
    openFeed: undefined,
    will: createWill(db, connection, packet.will),
    received: undefined,
    counts: { messages: 0, drops: 0 },
    refresh: coalesce(() => authorizer.refresh(session)),
  };
  sessions.add(session);
  metrics.connections(sessions.size);
  return session;

  async function leave(): Promise<void> {
    await ended;
    sessions.delete(session);
    metrics.connections(sessions.size);
    await Promise.all([session.queue?.close(), session.will.take()]);
  }
}
