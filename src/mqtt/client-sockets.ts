import { once } from 'node:events';
import type { Server } from 'node:net';
import type { Duplex } from 'node:stream';
import { createNetworkFilter } from '../egress/addresses.js';
import { createClientFinder } from '../http/client-address.js';
import { listen } from '../http/server.js';
import type { TlsFiles } from '../http/tls-files.js';
import type { LogLine } from '../lib/rate-limited-log.js';
import type { Refusal } from './protocol/connect-packet.js';
import { takeProxyHeader } from './protocol/proxy-header.js';
import { createTcpServer } from './protocol/tcp-listener.js';
import { openWebSocketEndpoint, type Upgrade } from './protocol/websocket.js';

/** Settings of the connections. */
export interface SocketOptions {
  /** Networks of proxies whose X-Forwarded-For and PROXY protocol are believed. */
  trusted_proxies: readonly string[];
  metrics: { refused(reason: Refusal): void };
  warn: LogLine;
  /** Aborts when the process ends. */
  stopped: AbortSignal;
  /** Serves a connection until it ends. Rejects when it is to be closed. */
  serve(stream: Duplex, ip: string): Promise<void>;
}

const max_connections = 10_000;

/** The connections of clients, over TCP and WebSocket. */
export class ClientSockets {
  /** Serves an HTTP server's `upgrade` event: a WebSocket at /mqtt. */
  readonly upgrade: Upgrade;
  private readonly streams = new Set<Duplex>();
  private readonly servers: Server[] = [];

  constructor(private readonly options: SocketOptions) {
    this.upgrade = openWebSocketEndpoint(this.handle, createClientFinder(options.trusted_proxies)).upgrade;
  }

  /** Serves a connection from `peer`; that of a trusted proxy may begin with a header of the PROXY protocol. */
  readonly handle = (stream: Duplex, peer: string, isTrusted = false): void => {
    const { metrics, warn, stopped, serve } = this.options;
    let ip = peer;
    const serveClient = async () => {
      if (isTrusted) ip = (await takeProxyHeader(stream)) ?? peer;
      await serve(stream, ip);
    };
    stream.on('error', () => undefined);
    if (stopped.aborted) return void stream.destroy();
    if (this.streams.size >= max_connections) {
      const reason = 'overloaded';
      metrics.refused(reason);
      warn(`MQTT login refused: ${reason}`, { reason, detail: 'too many connections', ip }, ip);
      return void stream.destroy();
    }
    this.streams.add(stream);
    stream.once('close', () => this.streams.delete(stream));
    serveClient().catch((error: unknown) => {
      stream.destroy();
      const reason = error instanceof Error ? error.message : String(error);
      if (reason !== 'closed') warn(`MQTT connection closed: ${reason}`, { reason, ip }, ip);
    });
  };

  /** Serves TCP, with TLS files over TLS. @returns the port. @throws StartError if it is taken */
  async listen(host: string, port: number, tls?: TlsFiles): Promise<number> {
    const { trusted_proxies, warn } = this.options;
    const isProxy = createNetworkFilter(trusted_proxies);
    const server = createTcpServer({ tls, isProxy, warn, handle: this.handle });
    const opened = await listen(server, { host, port }, tls === undefined ? 'MQTT_PORT' : 'MQTTS_PORT');
    this.servers.push(server);
    return opened;
  }

  /** Accepts no more TCP connections. */
  stopListening(): void {
    for (const server of this.servers) server.close();
  }

  /** Closes all connections at once. */
  destroy(): void {
    for (const stream of this.streams) stream.destroy();
  }

  /** Waits until all connections are closed: one that has ended within a second, one that has not logged in now. */
  async close(): Promise<void> {
    await Promise.all([...this.streams].map(waitForClose));
  }
}

/** A connection that has ended closes within a second; one that has not logged in is closed now. */
async function waitForClose(stream: Duplex): Promise<void> {
  if (!stream.writableEnded) stream.destroy();
  if (!stream.closed) await once(stream, 'close');
}
