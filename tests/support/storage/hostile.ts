import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';

/** The reaction of a hostile server to a request's head. `head` is the response up to the empty line. */
export type Behaviour =
  | { kind: 'silent' }
  /** The head, then silence. */
  | { kind: 'stall'; head?: string }
  /** The head, then one byte at a time: never idle, never done. */
  | { kind: 'drip'; head?: string; byte?: string; interval_ms?: number }
  /** The head, then `chunk` repeatedly, as fast as the client reads. */
  | { kind: 'endless'; head?: string; chunk?: string }
  | { kind: 'redirect'; to: string; status?: number }
  | { kind: 'answer'; status: number; headers?: Record<string, string>; body?: string | Buffer }
  /** The head and `body`, then a reset connection. */
  | { kind: 'cut'; head?: string; body?: string };

export interface HostileRequest {
  method: string;
  /** As it was sent. */
  target: string;
  head: string;
}

export interface HostileServer {
  host: string;
  port: number;
  /** Without a path. */
  url: string;
  /** The number of connections accepted so far. */
  connections(): number;
  /** Connections that are still open. */
  open(): number;
  requests(): readonly HostileRequest[];
  /** Bytes that were handed to the network so far. */
  sent(): number;
  /** From the next request on. */
  behave(next: Behaviour | ((request: HostileRequest) => Behaviour)): void;
  stop(): Promise<void>;
}

const endlessHead = 'HTTP/1.1 200 OK\r\nContent-Type: application/json';

/** Starts a raw server on a loopback address that misbehaves on demand, and counts its connections. */
export async function startHostile(
  first: Behaviour | ((request: HostileRequest) => Behaviour),
  host = '127.0.0.1',
): Promise<HostileServer> {
  let behaviour = first;
  let connections = 0;
  let sentBefore = 0;
  const sockets = new Set<Socket>();
  const requests: HostileRequest[] = [];

  const server = createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      sockets.delete(socket);
      sentBefore += socket.bytesWritten;
    });
    let received = '';
    socket.setEncoding('latin1').on('data', (text: string) => {
      if (received.includes('\r\n\r\n')) return;
      received += text;
      const end = received.indexOf('\r\n\r\n');
      if (end < 0) return;
      const head = received.slice(0, end);
      const [method = '', target = ''] = head.split(' ');
      const request = { method, target, head };
      requests.push(request);
      act(socket, typeof behaviour === 'function' ? behaviour(request) : behaviour);
    });
  }).listen(0, host);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;

  return {
    host,
    port,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    connections: () => connections,
    open: () => sockets.size,
    requests: () => requests,
    sent: () => [...sockets].reduce((sum, socket) => sum + socket.bytesWritten, sentBefore),
    behave(next) {
      behaviour = next;
    },
    async stop() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function act(socket: Socket, behaviour: Behaviour): void {
  switch (behaviour.kind) {
    case 'silent':
      return;
    case 'stall':
      socket.write(`${behaviour.head ?? `${endlessHead}\r\nContent-Length: 1000`}\r\n\r\n`);
      return;
    case 'drip': {
      const { head = endlessHead, byte = ' ', interval_ms = 50 } = behaviour;
      socket.write(`${head}\r\n\r\n`);
      const timer = setInterval(() => socket.write(byte), interval_ms);
      socket.on('close', () => clearInterval(timer));
      return;
    }
    case 'endless': {
      const { head = endlessHead, chunk = ' '.repeat(65_536) } = behaviour;
      socket.write(`${head}\r\n\r\n`);
      // one write per event-loop turn, so that a client in the same process can read
      const more = () => {
        if (socket.destroyed) return;
        if (socket.write(chunk)) setImmediate(more);
        else socket.once('drain', more);
      };
      more();
      return;
    }
    case 'redirect':
      answer(socket, behaviour.status ?? 302, { Location: behaviour.to }, '');
      return;
    case 'answer':
      answer(socket, behaviour.status, behaviour.headers ?? {}, behaviour.body ?? '');
      return;
    case 'cut': {
      const { head = `${endlessHead}\r\nContent-Length: 1000`, body = '{"' } = behaviour;
      socket.write(`${head}\r\n\r\n${body}`, () => socket.resetAndDestroy());
      return;
    }
  }
}

/** The framing is added unless `headers` have their own. */
function answer(socket: Socket, status: number, headers: Record<string, string>, body: string | Buffer): void {
  const all = { 'Content-Length': String(Buffer.byteLength(body)), Connection: 'close', ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  socket.write(`HTTP/1.1 ${status} Status\r\n${lines.join('\r\n')}\r\n\r\n`);
  socket.end(body);
}
