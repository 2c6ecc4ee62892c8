import { connect, type Socket } from 'node:net';

/** One answer as it arrived. */
export interface RawAnswer {
  /** The status line, without CRLF. */
  status: string;
  /** By lower-case name. */
  headers: Record<string, string>;
  body: string;
}

/** A TCP connection on which a test writes the bytes of requests itself. */
export interface RawClient {
  /** Sends text as UTF-8. */
  write(text: string): void;
  /** Reads the next answer, which has a `Content-Length` or no body. */
  answer(): Promise<RawAnswer>;
  /** Resolves when the service has closed the connection. @returns the bytes that no answer took */
  closed(): Promise<string>;
  destroy(): void;
}

/** Connects to the address of a service. */
export function openRawClient(url: string): RawClient {
  const { hostname, port } = new URL(url);
  const socket: Socket = connect({ host: hostname, port: Number(port) });
  let received = Buffer.alloc(0);
  let hasEnded = false;
  let wake = () => {};
  socket.on('data', (chunk: Buffer) => {
    received = Buffer.concat([received, chunk]);
    wake();
  });
  socket.on('close', () => {
    hasEnded = true;
    wake();
  });
  socket.on('error', () => undefined);

  /** Takes bytes from the front once `lengthOf` knows how many. */
  async function take(lengthOf: () => number | undefined): Promise<string> {
    for (let length = lengthOf(); ; length = lengthOf()) {
      if (length !== undefined && received.length >= length) {
        const taken = received.subarray(0, length).toString();
        received = received.subarray(length);
        return taken;
      }
      if (hasEnded) throw new Error(`closed after ${JSON.stringify(received.toString())}`);
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }

  return {
    write: (text) => socket.write(text),
    async answer() {
      const head = await take(() => {
        const end = received.indexOf('\r\n\r\n');
        return end < 0 ? undefined : end + 4;
      });
      const [status = '', ...lines] = head.trimEnd().split('\r\n');
      const headers = Object.fromEntries(
        lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]),
      );
      const length = Number(headers['content-length'] ?? 0);
      return { status, headers, body: await take(() => length) };
    },
    async closed() {
      while (!hasEnded)
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      return received.toString();
    },
    destroy: () => socket.destroy(),
  };
}
