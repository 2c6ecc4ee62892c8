import { createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createServer as createTlsServer } from 'node:tls';
import { handshake_limit_ms, type TlsFiles } from '../../http/tls-files.js';
import type { LogLine } from '../../lib/rate-limited-log.js';
import { takeProxyHeader } from './proxy-header.js';

interface Options {
  tls: TlsFiles | undefined;
  isProxy: (address: string) => boolean;
  warn: LogLine;
  /** Serves a connection, of TLS once its handshake is complete. */
  handle(stream: Duplex, ip: string, isTrusted?: boolean): void;
}

/** A client may send FIN before it reads what acknowledges its messages. */
const socketOptions = { allowHalfOpen: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 };
/** Those in a handshake included, which the broker does not count. */
const max_connections = 12_000;

/** Creates the server of a port of the broker, with TLS files over TLS. */
export function createTcpServer({ tls, ...options }: Options): Server {
  const { isProxy, handle } = options;
  const serveSecurely = tls && createTlsHandshake({ ...options, tls });
  const server = createServer(socketOptions, (socket) => {
    const { remoteAddress: peer = '' } = socket;
    if (serveSecurely === undefined) handle(socket, peer, isProxy(peer));
    else serveSecurely(socket, peer);
  });
  if (tls !== undefined) server.maxConnections = max_connections;
  return server;
}

/**
 * Creates the handler of TCP connections that speak TLS. A trusted proxy sends its header before the handshake. A certificate
 * that no authority has signed, or that has ended, ends the connection before a byte of MQTT is read.
 */
function createTlsHandshake({ tls, isProxy, warn, handle }: Options & { tls: TlsFiles }) {
  const { hasClientAuthorities: requestCert } = tls;
  /** Clients behind proxies, by the ends of their connections. */
  const clients = new Map<string, string>();
  const nameOf = ({ remoteAddress, remotePort }: Socket) => `${remoteAddress} ${remotePort}`;
  const limits = { handshakeTimeout: handshake_limit_ms };
  // a client without a certificate logs in with a password, as on the other port
  const server = tls.follow(createTlsServer({ ...limits, requestCert, rejectUnauthorized: false }), true);
  server.on('secureConnection', (stream) => {
    const ip = clients.get(nameOf(stream)) ?? stream.remoteAddress ?? '';
    const certificate = stream.getPeerX509Certificate();
    // a resumed session was verified at its beginning
    const hasEnded = certificate !== undefined && Date.parse(certificate.validTo) < Date.now();
    if (certificate === undefined || (stream.authorized && !hasEnded)) return handle(stream, ip);
    const detail = hasEnded ? 'CERT_HAS_EXPIRED' : String(stream.authorizationError);
    warn('MQTT login refused: certificate', { reason: 'certificate', detail, ip }, ip);
    stream.on('error', () => undefined).destroy();
  });
  return (socket: Socket, peer: string) => {
    socket.on('error', () => undefined);
    const start = () => server.emit('connection', socket);
    if (!isProxy(peer)) return void start();
    const name = nameOf(socket);
    const accept = async () => {
      const client = await takeProxyHeader(socket);
      if (client !== undefined) clients.set(name, client);
      socket.once('close', () => clients.delete(name));
      start();
    };
    accept().catch(() => socket.destroy());
  };
}
