import { once } from 'node:events';
import { createServer, IncomingMessage, type Server, type ServerOptions, ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Server as SocketServer } from 'node:net';
import express, { type Express, type Request, type Response } from 'express';
import type { Config } from '../config.js';
import { StartError } from '../errors.js';
import { handshake_limit_ms, type TlsFiles } from './tls-files.js';

/**
 * Creates an HTTP server without a handler, and an Express application for it. Express changes the prototype of each
 * request and response, which costs more than everything else it does. Requests of this server are created with it
 * (docs/decisions/0012-route-table-in-express.md). With TLS files it speaks HTTPS.
 */
export function openServer(options: ServerOptions = {}, files?: TlsFiles): { server: Server; express: Express } {
  class AppRequest extends IncomingMessage {}
  class AppResponse extends ServerResponse {}
  const app = express();
  Object.setPrototypeOf(AppRequest.prototype, app.request);
  Object.setPrototypeOf(AppResponse.prototype, app.response);
  app.request = AppRequest.prototype as Request;
  app.response = AppResponse.prototype as Response;
  // `checkHost` answers with a body
  const own = { requireHostHeader: false, IncomingMessage: AppRequest, ServerResponse: AppResponse };
  const server =
    files === undefined
      ? createServer({ ...options, ...own })
      : files.follow(
          createTlsServer({ ...options, ...own, handshakeTimeout: handshake_limit_ms, allowHalfOpen: true }),
        );
  // a client that ends its side after the request still gets the answer; not in the types of Node 20
  Object.assign(server, { httpAllowHalfOpen: true });
  return { server, express: app };
}

/** Returns the port of a server that listens. */
export function findPort(server: SocketServer): number | undefined {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : undefined;
}

/** Connections that wait to be accepted: of all devices after a restart. The system may allow fewer. */
const max_unaccepted = 4096;

/** Listens on a port. @returns the port, which 0 leaves to the system @throws StartError naming `variable` and HOST */
export async function listen(
  server: SocketServer,
  { host, port }: Pick<Config, 'host' | 'port'>,
  variable = 'PORT',
): Promise<number> {
  server.listen({ port, host, backlog: max_unaccepted });
  try {
    await once(server, 'listening');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new StartError(
      code === 'EADDRINUSE'
        ? `${variable} ${port} of HOST ${host} is taken`
        : `cannot listen on HOST ${host}, ${variable} ${port}: ${message}`,
    );
  }
  return findPort(server) ?? port;
}
