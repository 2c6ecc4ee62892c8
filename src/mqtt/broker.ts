import { once, setMaxListeners } from 'node:events';
import type { Server } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../db/database.js';
import { createNetworkFilter } from '../egress/addresses.js';
import { createClientFinder } from '../http/client-address.js';
import { listen } from '../http/server.js';
import type { TlsFiles } from '../http/tls-files.js';
import { coalesce } from '../lib/coalesce.js';
import { awaitLater } from '../lib/promises.js';
import { createRateLimitedLog, type LogLine } from '../lib/rate-limited-log.js';
import type { Ingest } from '../streams/ingest.js';
import { createAccountBrokers } from './account-broker.js';
import { reasons } from './connection/reasons.js';
import { createHandshake } from './login/handshake.js';
import { findWillPermissions, type LoginDeps } from './login/login.js';
import { SessionAuthorizer } from './login/session-authorizer.js';
import type { Refusal } from './protocol/connect-packet.js';
import { takeProxyHeader } from './protocol/proxy-header.js';
import { createTcpServer } from './protocol/tcp-listener.js';
import { openWebSocketEndpoint } from './protocol/websocket.js';
import type { BrokerDeps } from './sessions/broker-deps.js';
import { createConnectionList, removeConnections } from './sessions/connection-list.js';
import type { DeviceLink } from './sessions/device-link.js';
import type { PublishResult } from './sessions/ingest.js';
import { createMessageMemory } from './sessions/message-memory.js';
import { type PeerEvents, Peers } from './sessions/peers.js';
import { Rules } from './sessions/rules.js';
import type { Session } from './sessions/session.js';
import { startStateSweep } from './sessions/state-sweep.js';
import { createStateWriter } from './sessions/state-writer.js';
import { createLoginLookup } from './store/credentials.js';
import { isRegistered } from './store/instances.js';
import { optionsOf } from './store/messages.js';
import { releaseSessions } from './store/sessions.js';
import { deleteWill, deleteWills, findDueWills, scheduleWills, takeWill, type WillRef } from './store/wills.js';

/** Receives the figures of the broker. */
export interface BrokerMetrics {
  /** Connections that have logged in. */
  connections(count: number): void;
  /** `field` names the first invalid field of the payload. */
  dropped(reason: string, field?: string): void;
  /** Refused logins. */
  refused(reason: Refusal): void;
  published(): void;
}

interface Options extends Omit<LoginDeps, 'findDeviceLogin'> {
  ingest: Ingest;
  link: DeviceLink;
  log: Log;
  metrics: BrokerMetrics;
  /** Networks of proxies whose X-Forwarded-For and PROXY protocol are believed. */
  trusted_proxies: readonly string[];
}

const max_connections = 10_000;
const recheck_ms = 2000;
/** A will that waits longer may be a recheck late. */
const max_timer_ms = 86_400_000;

/** The embedded MQTT broker (reference/mqtt.md#broker). */
export type Broker = Awaited<ReturnType<typeof startBroker>>;

/** Starts a broker that does not listen yet, and the loop that rechecks permissions. */
export async function startBroker(options: Options) {
  const { db, log, clock } = options;
  const warn = createRateLimitedLog(log);
  const sessions = new Set<Session>();
  const streams = new Set<Duplex>();
  const servers: Server[] = [];
  const stopped = new AbortController();
  // every message beyond the forward rate waits with it
  setMaxListeners(0, stopped.signal);
  const authorizer = new SessionAuthorizer({ db, sessions, warn, clock });
  const rules = new Rules({ ...options, authorizer, warn });
  const writer = createStateWriter(db);
  const peers = new Peers(db, warn, createPeerEvents());
  const deps: BrokerDeps = {
    ...{ db, clock, rules, peers, writer, link: options.link },
    messageMemory: createMessageMemory(),
    onWillDeferred: waitForWill,
    stopped: stopped.signal,
  };
  const brokers = createAccountBrokers(deps);
  const reportUnlisted = (error: unknown) => warn('MQTT connections could not be listed', { err: error });
  const connections = createConnectionList(deps, reportUnlisted);
  const serve = createHandshake({
    ...{ ...options, ...deps, warn, sessions, authorizer, connections },
    findDeviceLogin: createLoginLookup(db),
    admit: async (session, request) => (await brokers.of(session.account)).admit(session, request),
  });
  const publishDueWills = coalesce(async () => {
    for (const will of await findDueWills(db, new Date(clock()))) await publishWill(will);
  });
  const recheck = async () => {
    await Promise.all([
      publishDueWills(),
      authorizer.recheck(),
      connections.refresh(),
      brokers.forgetGone(clock() / 1000),
    ]);
  };
  const rechecking = awaitLater(runRecheckLoop(recheck, stopped.signal, warn));
  const sweeping = startStateSweep(db, log, clock);

  function createPeerEvents(): PeerEvents {
    return {
      async storeClients() {
        await Promise.all((await brokers.all()).map((broker) => broker.storeClients()));
      },
      async takeOver(instance) {
        await releaseSessions(db, instance, true);
        await removeConnections(db, instance);
        await scheduleWills(db, instance, new Date(clock()));
        await publishDueWills();
      },
      apply: async (change) => (await brokers.find(change.account))?.apply(change),
      async startOver() {
        for (const stream of streams) stream.destroy();
        await Promise.all([...sessions].map(({ left }) => left));
        await brokers.close();
      },
    };
  }

  /**
   * Publishes a will that is due, unless another instance has taken it, and deletes it only then: should this instance be
   * killed, another one publishes it again.
   */
  async function publishWill(due: WillRef): Promise<void> {
    const { taken_by: former } = due;
    if (former !== undefined && former !== peers.id && (await isRegistered(db, former))) return;
    const will = await takeWill(db, due, peers.id);
    if (will === undefined) return;
    const { account, topic, payload, qos, retain, properties, message_expiry_s, message: id } = will;
    const permissions = await findWillPermissions(db, will, clock() / 1000);
    const message = { topic, payload, id, isRepeated: former !== undefined, isWill: true };
    const published: PublishResult =
      permissions === undefined
        ? { drop: 'not_allowed' }
        : await rules.ingestMessage({ account, permissions }, message);
    if ('drop' in published) {
      if (published.drop === 'database') throw published.error;
      rules.dropped({ account, permissions }, published, topic);
    } else {
      const messages = published.forward === 'itself' ? [{ topic, payload }] : published.forward;
      const broker = await brokers.of(account);
      const expires_at = message_expiry_s === undefined ? undefined : new Date(clock() + message_expiry_s * 1000);
      const options = { qos, retain, ...optionsOf({ properties, expires_at }) };
      for (const [index, message] of messages.entries())
        await broker.publish({ ...message, ...options }, () => `${id} ${index}`);
    }
    await deleteWill(db, will._id);
  }

  /** Publishes wills at their time. The recheck finds those of sessions that end sooner, and of lost instances. */
  function waitForWill(due_at: Date): void {
    const wait_ms = due_at.getTime() - clock();
    if (wait_ms > max_timer_ms) return;
    const publish = () => {
      if (!stopped.signal.aborted) publishDueWills().catch(rules.failed);
    };
    // a timer may fire a little before its time by the clock
    setTimeout(publish, wait_ms + 10).unref();
  }

  async function releaseAll(instance: string): Promise<void> {
    await releaseSessions(db, instance, false);
    await deleteWills(db, instance);
    await removeConnections(db, instance);
  }

  function handle(stream: Duplex, peer: string, isTrusted = false): void {
    let ip = peer;
    const serveClient = async () => {
      if (isTrusted) ip = (await takeProxyHeader(stream)) ?? peer;
      await serve(stream, ip);
    };
    stream.on('error', () => undefined);
    if (stopped.signal.aborted) return void stream.destroy();
    if (streams.size >= max_connections) {
      const reason = 'overloaded';
      options.metrics.refused(reason);
      warn(`MQTT login refused: ${reason}`, { reason, detail: 'too many connections', ip }, ip);
      return void stream.destroy();
    }
    streams.add(stream);
    stream.once('close', () => streams.delete(stream));
    serveClient().catch((error: unknown) => {
      stream.destroy();
      const reason = error instanceof Error ? error.message : String(error);
      if (reason !== 'closed') warn(`MQTT connection closed: ${reason}`, { reason, ip }, ip);
    });
  }

  return {
    /** Serves a connection from `ip`; that of a trusted proxy may begin with a header of the PROXY protocol. */
    handle,
    /** Serves TCP, with TLS files over TLS. @returns the port. @throws StartError if it is taken */
    async listen(host: string, port: number, tls?: TlsFiles): Promise<number> {
      const isProxy = createNetworkFilter(options.trusted_proxies);
      const server = createTcpServer({ tls, isProxy, warn, handle });
      const opened = await listen(server, { host, port }, tls === undefined ? 'MQTT_PORT' : 'MQTTS_PORT');
      servers.push(server);
      return opened;
    },
    /** Serves an HTTP server's `upgrade` event: a WebSocket at /mqtt. */
    upgrade: openWebSocketEndpoint(handle, createClientFinder(options.trusted_proxies)).upgrade,
    /** Withdraws permissions that the database no longer grants; runs every 2 s by itself. */
    recheck,
    /** Stops listening, acknowledges the messages being stored, closes all connections without publishing their wills. */
    async close(): Promise<void> {
      stopped.abort();
      for (const server of servers) server.close();
      const ending = [...sessions];
      for (const session of ending) session.leave(reasons.shutting_down);
      await Promise.all(ending.map(({ outbox }) => outbox.ended));
      await Promise.all([...streams].map(waitForClose));
      await brokers.close();
      await Promise.all(ending.map(({ left }) => left));
      await peers
        .close(() => releaseAll(peers.id))
        .catch((error: unknown) => warn('MQTT state not released', { err: error }));
      await Promise.all([rechecking, sweeping.stop()]);
    },
  };
}

/** A connection that has ended closes within a second; one that has not logged in is closed now. */
async function waitForClose(stream: Duplex): Promise<void> {
  if (!stream.writableEnded) stream.destroy();
  if (!stream.closed) await once(stream, 'close');
}

async function runRecheckLoop(recheck: Broker['recheck'], stopped: AbortSignal, warn: LogLine): Promise<void> {
  while (!stopped.aborted) {
    await sleep(recheck_ms, undefined, { signal: stopped, ref: false }).catch(() => undefined);
    if (stopped.aborted) return;
    await recheck().catch((error: unknown) => warn('MQTT connections could not be rechecked', { err: error }));
  }
}
