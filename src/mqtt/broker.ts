import { createServer, type Server } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { coalesce } from '../coalesce.js';
import type { Database, Log } from '../db/database.js';
import { AppError, StartError } from '../errors.js';
import type { Keyring } from '../repositories/api-keys.js';
import type { AreAncestorsEnabled } from '../telemetry/enabled-cache.js';
import type { Ingest } from '../telemetry/ingest.js';
import { type AccountBroker, endOf, openAccountBroker, type Rules, type Session } from './account-broker.js';
import { ingestPublish } from './ingest.js';
import { applyAuthorization, logIn, reauthorize } from './login.js';
import { readConnect, refuseConnection } from './packet-limits.js';
import type { Verify } from './passwords.js';
import { mayPublish, maySubscribe } from './permissions.js';
import { rateLimited } from './rate-limited-log.js';
import { isTopic } from './topics.js';
import { openWebSocketEndpoint, type Upgrade } from './websocket.js';

/** What the broker tells the metrics. */
export interface BrokerMetrics {
  /** Connections that have logged in. */
  connections(count: number): void;
  dropped(reason: string): void;
  published(): void;
}

interface Options {
  db: Database;
  record: Ingest;
  enabledAbove: AreAncestorsEnabled;
  keyring: Keyring;
  verify: Verify;
  log: Log;
  metrics: BrokerMetrics;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** The embedded MQTT broker (contract 9). */
export interface Broker {
  /** Serves a connection from `ip`. */
  handle(stream: Duplex, ip: string): void;
  /** Serves TCP. @returns the port. @throws StartError if it is taken */
  listen(host: string, port: number): Promise<number>;
  /** Serves a WebSocket at /mqtt with subprotocol `mqtt`, as an HTTP server's `upgrade` event brings it. */
  upgrade: Upgrade;
  /** Takes from the connections what they no longer may; done every 2 s by itself. */
  recheck(): Promise<void>;
  /** Stops listening, finishes what is being stored, closes all connections without their wills. */
  close(): Promise<void>;
}

const most_connections = 10_000;
const most_held_bytes = 64 * 1024 * 1024;
const recheck_ms = 2000;
/** Together with the time of a recheck under the 5 s of contract 9; then nothing is allowed until one succeeds. */
const fresh_ms = 5000;
const longest_client_id = 256;
const flush_ms = 50;

export async function startBroker(options: Options): Promise<Broker> {
  const { db, record, log, metrics, clock } = options;
  const spaces = new Map<string, Promise<AccountBroker>>();
  const sessions = new Set<Session>();
  const streams = new Set<Duplex>();
  const servers: Server[] = [];
  const stopped = new AbortController();
  const note = rateLimited(log);
  let held_bytes = 0;

  const isFresh = ({ checked }: Session) => performance.now() - checked < fresh_ms;

  const rules: Rules = {
    async publish(session, message) {
      try {
        if (!(await allows(session, ({ permissions }) => mayPublish(permissions, message.topic))))
          return { drop: 'not_allowed' };
        const { account, permissions } = session;
        return await ingestPublish(record, { account, permissions: permissions, now: clock() / 1000, ...message });
      } catch (error) {
        return { drop: 'database', error };
      }
    },
    async maySubscribe(session, filter) {
      return allows(session, ({ permissions }) => maySubscribe(permissions, filter)).catch(() => false);
    },
    isFresh,
    dropped(session, reason, error) {
      metrics.dropped(reason);
      note(`MQTT message dropped: ${reason}`, {
        ...(session && { account: session.account }),
        ...(session?.permissions.kind === 'device' && { device: session.permissions.device }),
        ...(error !== undefined && { err: error instanceof AppError ? (error.cause ?? error) : error }),
      });
    },
    published: metrics.published,
    failed: (error) => note('MQTT broker failed', { err: error }),
  };

  /**
   * A right that was given a moment ago counts at once: before refusing, the database is asked. After an outage that is
   * for all connections together, as those who are to receive a message must be known again, too.
   */
  async function allows(session: Session, test: (session: Session) => boolean): Promise<boolean> {
    if (session.revoked) return false;
    if (isFresh(session) && test(session)) return true;
    await (isFresh(session) ? session.refresh() : recheck());
    return !session.revoked && isFresh(session) && test(session);
  }

  function spaceOf(account: string): Promise<AccountBroker> {
    const known = spaces.get(account);
    if (known !== undefined) return known;
    const opened = openAccountBroker(rules);
    spaces.set(account, opened);
    return opened;
  }

  async function serve(stream: Duplex, ip: string): Promise<void> {
    let held = 0;
    try {
      const opening = await readConnect(stream, (bytes) => {
        held += bytes;
        held_bytes += bytes;
        return held_bytes <= most_held_bytes;
      });
      const { packet } = opening;
      const { protocolVersion, clientId: client_id, clean, will } = packet;
      const refused = (refusal: Parameters<typeof refuseConnection>[1]) => {
        note(`MQTT connection refused: ${refusal}`, { ip });
        refuseConnection(stream, refusal, protocolVersion);
      };
      if (protocolVersion !== 3 && protocolVersion !== 4) return refused('version');
      if (client_id.length > longest_client_id || (client_id === '' && clean === false)) return refused('identifier');
      if (will !== undefined && ((will.qos ?? 0) > 2 || !isTopic(will.topic))) return refused('unauthorized');
      const begun = performance.now();
      const login = await logIn(options, packet.username, packet.password?.toString() ?? '').catch((error: unknown) => {
        note('MQTT login failed', { err: error });
        return 'unavailable' as const;
      });
      if (typeof login === 'string') return refused(login);
      if (stream.destroyed || stopped.signal.aborted) return void stream.destroy();
      const session = sessionOf(stream, client_id, login, begun);
      sessions.add(session);
      metrics.connections(sessions.size);
      void session.ended.then(() => {
        sessions.delete(session);
        metrics.connections(sessions.size);
      });
      const space = await spaceOf(login.account);
      const refusal = await space.admit(session, opening);
      if (refusal !== undefined) refused(refusal);
    } finally {
      held_bytes -= held;
    }
  }

  function sessionOf(
    stream: Duplex,
    client_id: string,
    login: Pick<Session, 'account' | 'owner' | 'permissions'>,
    checked: number,
  ): Session {
    const session: Session = {
      ...login,
      client_id,
      stream,
      checked,
      ended: endOf(stream),
      revoked: false,
      turn: Promise.resolve(),
      subscriptions: new Set(),
      refresh: coalesce(() => recheckAll([session])),
    };
    return session;
  }

  async function recheckAll(some: Iterable<Session>): Promise<void> {
    const checked = performance.now();
    const all = [...some];
    const { permissions } = await reauthorize(db, [...new Set(all.map(({ owner }) => owner))], clock() / 1000);
    for (const session of all) applyAuthorization(session, permissions.get(session.owner), checked);
  }

  const recheck = coalesce(async () => {
    await recheckAll(sessions);
    // those who left sessions behind: without credentials nobody can come back for them
    for (const opened of spaces.values()) {
      const space = await opened;
      const { gone } = await reauthorize(db, space.lasting(), clock() / 1000);
      for (const owner of gone) await space.forget(owner);
    }
  });

  async function keepRechecking(): Promise<void> {
    while (!stopped.signal.aborted) {
      await sleep(recheck_ms, undefined, { signal: stopped.signal, ref: false }).catch(() => undefined);
      if (stopped.signal.aborted) return;
      await recheck().catch((error: unknown) => note('MQTT connections could not be rechecked', { err: error }));
    }
  }
  const rechecking = keepRechecking();

  function handle(stream: Duplex, ip: string): void {
    stream.on('error', () => undefined);
    if (stopped.signal.aborted || streams.size >= most_connections) {
      stream.destroy();
      return;
    }
    streams.add(stream);
    stream.once('close', () => streams.delete(stream));
    serve(stream, ip).catch((error: unknown) => {
      stream.destroy();
      const reason = error instanceof Error ? error.message : String(error);
      if (reason !== 'closed') note(`MQTT connection closed: ${reason}`, { ip });
    });
  }

  return {
    handle,
    async listen(host, port) {
      const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }, (socket) =>
        handle(socket, socket.remoteAddress ?? ''),
      );
      await new Promise<void>((resolve, reject) => {
        server.once('error', (error: NodeJS.ErrnoException) =>
          reject(
            new StartError(
              error.code === 'EADDRINUSE'
                ? `MQTT_PORT ${port} of HOST ${host} is taken`
                : `cannot listen on HOST ${host}, MQTT_PORT ${port}: ${error.message}`,
            ),
          ),
        );
        server.listen(port, host, resolve);
      });
      servers.push(server);
      const address = server.address();
      return typeof address === 'object' && address !== null ? address.port : port;
    },
    upgrade: openWebSocketEndpoint(handle).upgrade,
    recheck,
    async close() {
      stopped.abort();
      for (const server of servers) server.close();
      for (const session of sessions) session.revoked = true;
      await Promise.all([...sessions].map(({ turn }) => turn));
      await sleep(flush_ms);
      for (const stream of streams) stream.destroy();
      for (const space of spaces.values()) await (await space).close();
      await rechecking;
    },
  };
}
