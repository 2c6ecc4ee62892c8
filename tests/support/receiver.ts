import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { findFreePort } from '../../scripts/support/service-process.js';

/** A request that a receiver has read to its end. */
export interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/** Answers one request; without it the answer is 204. */
export type Answer = (response: ServerResponse, received: Received) => void;

/** An HTTP server that webhooks send events to. */
export interface Receiver {
  url: string;
  port: number;
  received: Received[];
  /** The bodies received so far, parsed. */
  // biome-ignore lint/suspicious/noExplicitAny: events have every shape
  events(): any[];
  /** Sets the answer of later requests. */
  answer(next: Answer | undefined): void;
  /** Closes the port and every connection. */
  close(): Promise<void>;
}

/** Starts a receiver on 127.0.0.1. @param port a free one by default */
export async function startReceiver(port = 0, first?: Answer): Promise<Receiver> {
  const received: Received[] = [];
  const sockets = new Set<Socket>();
  let current = first;
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk);
    } catch {
      return;
    }
    const one = { path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks).toString() };
    received.push(one);
    if (current === undefined) response.writeHead(204).end();
    else current(response, one);
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  });
  // one that can be opened again after `close`
  server.listen(port === 0 ? await findFreePort() : port, '127.0.0.1');
  await once(server, 'listening');
  const { port: bound } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${bound}/events`,
    port: bound,
    received,
    events: () => received.map(({ body }) => JSON.parse(body)),
    answer(next) {
      current = next;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** An answer with a status and no body. */
export function answerWith(status: number, headers: Record<string, string> = {}): Answer {
  return (response) => void response.writeHead(status, headers).end();
}
