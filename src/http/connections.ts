import { randomUUID } from 'node:crypto';
import { type IncomingMessage, type RequestListener, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket, Server as TlsServer } from 'node:tls';
import type { Response } from 'express';
import { type Failure, failures } from '../errors.js';
import type { Locals } from './context.js';
import { contentTypes } from './send.js';

export type Connections = ReturnType<typeof trackConnections>;

export type OnWebSocket = (request: IncomingMessage, socket: Duplex, head: Buffer) => void;

type Exchange = [request: IncomingMessage, response: ServerResponse];

interface Connection {
  socket: Socket;
  /** Responses of requests that have been started. */
  open: Set<ServerResponse>;
  /** Pipelined requests that wait for a place among the open ones. */
  waiting: Exchange[];
  /** Fault of bytes that are no request; answered after the requests before them. */
  failure?: ParserError | undefined;
  /** Runs when all open responses are settled: an upgrade request that is to be handled as an ordinary one. */
  onIdle?: (() => void) | undefined;
  /** An answer with `Connection: close` is under way; whatever follows is not carried out. */
  isLast: boolean;
  /** Looks of the closing server at which it was idle, one after the other. */
  idle_sweeps: number;
  /** The last request, until it is seen to be complete, and its time of arrival in milliseconds of the process. */
  latest?: { exchange: Exchange; since_ms: number } | undefined;
}

/** Time to send one request, and the period in which that is checked. */
const defaultLimits = { request_limit_ms: 60_000, request_check_ms: 10_000 };

/** Requests of one connection that are in progress at once; more are not read until one of them is answered. */
const max_open_per_connection = 16;
const sweep_ms = 50;
/**
 * Looks, or half a second, in which a client on a kept-alive connection may send one more request after the server has begun
 * to close. A time would also pass while the process is held up and cannot read what has arrived.
 */
const linger_sweeps = 10;

/**
 * Hands the requests of a server to `handle`, at most 16 at once for each connection. When a connection is closed, all of
 * its responses emit `close`: Node does so only for the first of several pipelined ones.
 */
export function trackConnections(
  server: Server,
  handle: RequestListener,
  { request_limit_ms, request_check_ms } = defaultLimits,
) {
  const connections = new Map<Socket, Connection>();
  /** The sockets below, of which those in a TLS handshake are no connections yet. */
  const sockets = new Set<Socket>();
  let isDraining = false;

  function connectionOf(socket: Socket): Connection {
    const existing = connections.get(socket);
    if (existing !== undefined) return existing;
    const connection: Connection = { socket, open: new Set(), waiting: [], isLast: false, idle_sweeps: 0 };
    connections.set(socket, connection);
    socket.once('close', () => {
      connections.delete(socket);
      connection.waiting.length = 0;
      for (const response of connection.open) closeQueued(response);
    });
    return connection;
  }

  function receive(request: IncomingMessage, response: ServerResponse): void {
    const connection = connectionOf(request.socket);
    if (connection.isLast) return;
    connection.latest = { exchange: [request, response], since_ms: performance.now() };
    if (connection.open.size < max_open_per_connection) {
      start(connection, [request, response]);
      return;
    }
    connection.waiting.push([request, response]);
    connection.socket.pause();
  }

  function start(connection: Connection, [request, response]: Exchange): void {
    connection.open.add(response);
    if (isDraining) markLast(connection);
    response.once('close', () => {
      connection.open.delete(response);
      continueWith(connection);
    });
    handle(request, response);
  }

  function continueWith(connection: Connection): void {
    const { open, waiting, socket } = connection;
    if (connection.isLast || socket.destroyed) return;
    const next = waiting.shift();
    if (next !== undefined) start(connection, next);
    else if (socket.isPaused()) socket.resume();
    if (open.size === 0) connection.onIdle?.();
    answerFailure(connection);
  }

  const requestCheck = setInterval(() => {
    for (const connection of connections.values()) checkRequestTime(connection, request_limit_ms);
  }, request_check_ms).unref();
  server.once('close', () => clearInterval(requestCheck));
  server.on('connection', (socket: Socket) => {
    // again for each request that is replayed
    if (sockets.has(socket)) return;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', connectionOf);
  server.on('request', receive);
  // Node would answer an expectation other than 100-continue with a 417 without a body
  server.on('checkExpectation', receive);
  server.on('clientError', (error: ParserError, socket: Socket) => {
    const connection = connectionOf(socket);
    connection.failure ??= error;
    if (socket.writable) answerFailure(connection);
    else socket.destroy();
  });
  return {
    /**
     * Hands WebSocket upgrades of `/mqtt` to `onWebSocket`. Any other request with an `Upgrade` header, such as the `h2c` that
     * some clients offer with their first request, is handled as if the header were absent (RFC 9110 §7.8).
     */
    acceptWebSockets(onWebSocket: OnWebSocket): void {
      server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
        if (isMqttOverWebSocket(request)) {
          onWebSocket(request, socket, head);
          return;
        }
        const connection = connectionOf(socket);
        const replayRequest = () => {
          connection.onIdle = undefined;
          replay(server, request, socket, head);
        };
        if (connection.open.size === 0) replayRequest();
        else connection.onIdle = replayRequest;
      });
    },
    /** From now on, every answer carries `Connection: close`. */
    startDraining(): void {
      isDraining = true;
      for (const connection of connections.values()) markLast(connection);
    },
    /** Stops accepting connections, answers what was received, and cuts what is left after `limit_ms`. */
    async close(limit_ms: number): Promise<void> {
      this.startDraining();
      // http.Server.close would destroy idle connections at once, and with them requests that were just sent
      const closed = new Promise((resolve) => NetServer.prototype.close.call(server, resolve));
      const sweep = setInterval(() => {
        for (const connection of connections.values()) {
          const isIdle = connection.open.size === 0 && connection.waiting.length === 0;
          connection.idle_sweeps = isIdle ? connection.idle_sweeps + 1 : 0;
          if (connection.idle_sweeps > linger_sweeps) connection.socket.destroySoon();
        }
      }, sweep_ms);
      const limit = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, limit_ms);
      await closed;
      clearInterval(sweep);
      clearTimeout(limit);
    },
  };
}

/** Closes a connection on which a request takes too long to arrive, uploads without a limit aside. */
function checkRequestTime(connection: Connection, limit_ms: number): void {
  if (connection.latest === undefined) return;
  const { exchange, since_ms } = connection.latest;
  const [request, response] = exchange;
  // a request that waits for others on its connection has no state yet
  const locals: Partial<Locals> | undefined = (response as Response).locals;
  if (request.complete) connection.latest = undefined;
  else if (performance.now() - since_ms > limit_ms && locals?.isUnlimitedUpload !== true) {
    connection.failure ??= arrivesTooLate;
    answerFailure(connection);
  }
}

/** Ends a connection with bytes that are no request, or no whole one, once the requests before them are answered. */
function answerFailure({ failure, latest, open, waiting, socket }: Connection): void {
  if (failure === undefined || waiting.length > 0) return;
  const [request, response] = latest?.exchange ?? [];
  const broken = request?.complete === false ? response : undefined;
  if ([...open].some((other) => other !== broken)) return;
  if (broken?.headersSent !== true) socket.write(formatParserFailure(failure, broken?.getHeader('X-Request-Id')));
  socket.destroySoon();
}

/** Makes the last open response of a connection its last of all; earlier ones are still answered. */
function markLast(connection: Connection): void {
  const last = [...connection.open].at(-1);
  if (last === undefined || last.headersSent) return;
  last.setHeader('Connection', 'close');
  connection.isLast = true;
  connection.waiting.length = 0;
}

/** Does for a response in the queue of a closed connection what Node does for the first one. */
function closeQueued(response: ServerResponse): void {
  response.destroyed = true;
  response.emit('close');
}

function isMqttOverWebSocket({ headers, url = '' }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket' && /^\/mqtt\/?(?:\?|$)/.test(url);
}

/** Feeds a request to a new parser on its connection, without the headers that ask for an upgrade. */
function replay(
  server: Server,
  { method, url, httpVersion, rawHeaders }: IncomingMessage,
  socket: Socket,
  head: Buffer,
) {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const [name = '', value = ''] = rawHeaders.slice(at, at + 2);
    if (/^(?:upgrade|http2-settings)$/i.test(name)) continue;
    const tokens = value.split(',').filter((token) => !/^\s*(?:upgrade|http2-settings)\s*$/i.test(token));
    lines.push(`${name}: ${/^connection$/i.test(name) ? tokens.join(',').trim() || 'keep-alive' : value}`);
  }
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), head]));
  server.emit(socket instanceof TLSSocket ? 'secureConnection' : 'connection', socket);
}

/** An error of Node's HTTP parser, or its time limit. */
export interface ParserError {
  code?: string;
  /** Error of Node's parser. */
  reason?: string;
}

/** The error of a request that takes too long to arrive. */
const arrivesTooLate: ParserError = { code: 'ERR_HTTP_REQUEST_TIMEOUT' };

const failureByCode: ReadonlyMap<string | undefined, Failure> = new Map([
  [arrivesTooLate.code, 'requestTimeout'],
  ['HPE_HEADER_OVERFLOW', 'headersTooLarge'],
  ['HPE_CHUNK_EXTENSIONS_OVERFLOW', 'tooLarge'],
]);

/** Formats the answer to bytes that are no request, which Node would answer without a body (reference/errors.md#error-body). */
function formatParserFailure({ code: cause, reason }: ParserError, request_id: unknown = randomUUID()): string {
  const failure = failureByCode.get(cause) ?? 'badParameter';
  const { status, code, message } = failures[failure];
  const details = failure === 'badParameter' ? { request: `must be HTTP: ${reason}` } : {};
  const body = JSON.stringify({ code, message, details });
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nX-Request-Id: ${request_id}\r\nContent-Type: ${contentTypes.json}`;
  return `${head}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`;
}
