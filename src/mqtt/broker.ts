import { setMaxListeners } from 'node:events';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../db/database.js';
import type { LeasedJob } from '../db/leased-job.js';
import type { TlsFiles } from '../http/tls-files.js';
import { awaitLater } from '../lib/promises.js';
import { createRateLimitedLog, type LogLine } from '../lib/rate-limited-log.js';
import type { Ingest } from '../streams/ingest.js';
import { type AccountBrokers, createAccountBrokers } from './account-broker.js';
import { ClientSockets, type SocketOptions } from './client-sockets.js';
import { reasons } from './connection/reasons.js';
import { DueWills } from './due-wills.js';
import { createHandshake } from './login/handshake.js';
import type { LoginDeps } from './login/login.js';
import { SessionAuthorizer } from './login/session-authorizer.js';
import type { Refusal } from './protocol/connect-packet.js';
import type { Upgrade } from './protocol/websocket.js';
import type { BrokerDeps } from './sessions/broker-deps.js';
import { type ConnectionList, createConnectionList, removeConnections } from './sessions/connection-list.js';
import type { DeviceLink } from './sessions/device-link.js';
import { createMessageMemory } from './sessions/message-memory.js';
import { type PeerEvents, Peers } from './sessions/peers.js';
import { Rules } from './sessions/rules.js';
import type { Session } from './sessions/session.js';
import { startStateSweep } from './sessions/state-sweep.js';
import { createStateWriter } from './sessions/state-writer.js';
import { createLoginLookup } from './store/credentials.js';
import { releaseSessions } from './store/sessions.js';
import { deleteWills, scheduleWills } from './store/wills.js';

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

interface Options extends Omit<LoginDeps, 'findDeviceLogin'>, Pick<SocketOptions, 'trusted_proxies'> {
  ingest: Ingest;
  link: DeviceLink;
  log: Log;
  metrics: BrokerMetrics;
}

const recheck_ms = 2000;

/** The embedded MQTT broker (reference/mqtt.md#broker). */
export class Broker {
  /** Serves an HTTP server's `upgrade` event: a WebSocket at /mqtt. */
  readonly upgrade: Upgrade;
  private readonly sessions = new Set<Session>();
  private readonly stopped = new AbortController();
  private readonly warn: LogLine;
  private readonly authorizer: SessionAuthorizer;
  private readonly peers: Peers;
  private readonly brokers: AccountBrokers;
  private readonly wills: DueWills;
  private readonly connections: ConnectionList;
  private readonly sockets: ClientSockets;
  private readonly rechecking: Promise<void>;
  private readonly sweeping: LeasedJob;

  /** Starts a broker that does not listen yet, and the loop that rechecks permissions. */
  constructor(private readonly options: Options) {
    const { db, log, clock, link } = options;
    const { sessions } = this;
    const stopped = this.stopped.signal;
    // every message beyond the forward rate waits with it
    setMaxListeners(0, stopped);
    const warn = createRateLimitedLog(log);
    const authorizer = new SessionAuthorizer({ db, sessions, warn, clock });
    const rules = new Rules({ ...options, authorizer, warn });
    const writer = createStateWriter(db);
    const peers = new Peers(db, warn, this.createPeerEvents());
    const deps: BrokerDeps = {
      ...{ db, clock, rules, peers, writer, link, stopped },
      messageMemory: createMessageMemory(),
      onWillDeferred: (due_at) => this.wills.publishAt(due_at),
    };
    const brokers = createAccountBrokers(deps);
    const reportUnlisted = (error: unknown) => warn('MQTT connections could not be listed', { err: error });
    const connections = createConnectionList(deps, reportUnlisted);
    const serve = createHandshake({
      ...{ ...options, ...deps, warn, sessions, authorizer, connections },
      findDeviceLogin: createLoginLookup(db),
      admit: async (session, request) => (await brokers.of(session.account)).admit(session, request),
    });
    this.warn = warn;
    this.authorizer = authorizer;
    this.peers = peers;
    this.brokers = brokers;
    this.connections = connections;
    this.wills = new DueWills(deps, brokers);
    this.sockets = new ClientSockets({ ...options, warn, stopped, serve });
    this.upgrade = this.sockets.upgrade;
    this.rechecking = awaitLater(this.runRecheckLoop());
    this.sweeping = startStateSweep(db, log, clock);
  }

  /** Serves a connection from `ip`; that of a trusted proxy may begin with a header of the PROXY protocol. */
  handle(stream: Duplex, ip: string, isTrusted?: boolean): void {
    this.sockets.handle(stream, ip, isTrusted);
  }

  /** Serves TCP, with TLS files over TLS. @returns the port. @throws StartError if it is taken */
  listen(host: string, port: number, tls?: TlsFiles): Promise<number> {
    return this.sockets.listen(host, port, tls);
  }

  /** Withdraws permissions that the database no longer grants; runs every 2 s by itself. */
  async recheck(): Promise<void> {
    await Promise.all([
      this.wills.publish(),
      this.authorizer.recheck(),
      this.connections.refresh(),
      this.brokers.forgetGone(this.options.clock() / 1000),
    ]);
  }

  /** Stops listening, acknowledges the messages being stored, closes all connections without publishing their wills. */
  async close(): Promise<void> {
    const { sockets, peers, brokers } = this;
    this.stopped.abort();
    sockets.stopListening();
    const ending = [...this.sessions];
    for (const session of ending) session.leave(reasons.shutting_down);
    await Promise.all(ending.map(({ outbox }) => outbox.ended));
    await sockets.close();
    await brokers.close();
    await Promise.all(ending.map(({ left }) => left));
    await peers
      .close(() => this.releaseAll(peers.id))
      .catch((error: unknown) => this.warn('MQTT state not released', { err: error }));
    await Promise.all([this.rechecking, this.sweeping.stop()]);
  }

  private createPeerEvents(): PeerEvents {
    const { db, clock } = this.options;
    return {
      storeClients: async () => {
        await Promise.all((await this.brokers.all()).map((broker) => broker.storeClients()));
      },
      takeOver: async (instance) => {
        await releaseSessions(db, instance, true);
        await removeConnections(db, instance);
        await scheduleWills(db, instance, new Date(clock()));
        await this.wills.publish();
      },
      apply: async (change) => (await this.brokers.find(change.account))?.apply(change),
      startOver: async () => {
        this.sockets.destroy();
        await Promise.all([...this.sessions].map(({ left }) => left));
        await this.brokers.close();
      },
    };
  }

  private async releaseAll(instance: string): Promise<void> {
    const { db } = this.options;
    await releaseSessions(db, instance, false);
    await deleteWills(db, instance);
    await removeConnections(db, instance);
  }

  private async runRecheckLoop(): Promise<void> {
    const { signal } = this.stopped;
    while (!signal.aborted) {
      await sleep(recheck_ms, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      await this.recheck().catch((err: unknown) => this.warn('MQTT connections could not be rechecked', { err }));
    }
  }
}
