import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { createWebSocketStream, WebSocketServer } from 'ws';
import { createNetworkFilter } from '../../egress/addresses.js';
import { createClientFinder, type FindClient } from '../../http/client-address.js';
import { packet_limit_bytes } from '../connection/frames.js';
import { formatProxyHeader } from './proxy-header.js';

/** Handles the `upgrade` event of an HTTP server. */
export type Upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => void;

/** Subprotocols of MQTT; clients of 3.1 ask for the second one. */
const subprotocols = ['mqtt', 'mqttv3.1'] as const;

/** MQTT over WebSocket at /mqtt (reference/mqtt.md#broker); each connection goes to `handle`. */
export function openWebSocketEndpoint(handle: (stream: Duplex, ip: string) => void, findClient: FindClient) {
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: packet_limit_bytes,
    perMessageDeflate: false,
    handleProtocols: (offered) => subprotocols.find((protocol) => offered.has(protocol)) ?? false,
  });
  const upgrade: Upgrade = (request, socket, head) => {
    socket.on('error', () => undefined);
    const path = (request.url ?? '').replace(/\?.*/s, '').replace(/\/$/, '');
    const offered = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((protocol) => protocol.trim());
    if (path !== '/mqtt') return rejectUpgrade(socket, '404 Not Found');
    if (!subprotocols.some((protocol) => offered.includes(protocol))) return rejectUpgrade(socket, '400 Bad Request');
    sockets.handleUpgrade(request, socket, head, (websocket) => {
      websocket.on('message', (_data, isBinary) => {
        if (!isBinary) websocket.terminate();
      });
      handle(createWebSocketStream(websocket), findClient(request) ?? '');
    });
  };
  /** Closes the accepted connections. */
  const close = () => {
    for (const websocket of sockets.clients) websocket.terminate();
  };
  return { upgrade, close };
}

function rejectUpgrade(socket: Duplex, status: string): void {
  // unread bytes would hide the end of the connection from Node: close it once the answer is written
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, () => socket.destroy());
}

interface BrokerAddress {
  host: string;
  port: number;
  /** The port speaks TLS, with a certificate for other names than this host. */
  isSecure: boolean;
}

/** Pipes WebSocket connections of a worker without the broker to the broker's TCP port. */
export function openTunnel({ host, port, isSecure }: BrokerAddress, trusted_proxies: readonly string[]) {
  const isTrusted = createNetworkFilter(trusted_proxies);
  return openWebSocketEndpoint((stream, ip) => {
    const socket = connect({ host, port, noDelay: true });
    const broker: Duplex = isSecure ? connectTls({ socket, rejectUnauthorized: false }) : socket;
    const end = () => {
      stream.destroy();
      broker.destroy();
    };
    for (const side of [stream, broker, socket]) side.once('error', end).once('close', end);
    socket.once('connect', () => {
      if (isTrusted(socket.localAddress ?? '')) socket.write(formatProxyHeader(ip));
      stream.pipe(broker).pipe(stream);
    });
  }, createClientFinder(trusted_proxies));
}
