import { Duplex } from 'node:stream';
import { type IConnectPacket, type Packet, parser } from 'mqtt-packet';

/** The largest packet, its header included (contract 9). */
export const packet_limit_bytes = 512 * 1024;
const connect_limit_ms = 10_000;
const connect_type = 0x10;

/** Follows packets through a stream of bytes. @returns a function that takes the next bytes: false once a packet is malformed or too large */
export function createFrameLimit(): (chunk: Uint8Array) => boolean {
  let header = 0;
  let length = 0;
  let body = 0;
  return (chunk) => {
    for (let at = 0; at < chunk.length; ) {
      if (body > 0) {
        const skipped = Math.min(body, chunk.length - at);
        body -= skipped;
        at += skipped;
        continue;
      }
      const byte = chunk[at++] ?? 0;
      if (header++ === 0) {
        length = 0;
        continue;
      }
      length += (byte & 0x7f) * 128 ** (header - 2);
      if ((byte & 0x80) !== 0) {
        if (header === 5) return false;
        continue;
      }
      if (header + length > packet_limit_bytes) return false;
      body = length;
      header = 0;
    }
    return true;
  };
}

/** @returns the bytes of the first packet, undefined while its header is incomplete */
function packetSize(start: Buffer): number | undefined {
  let length = 0;
  for (let at = 1; at < start.length; at++) {
    const byte = start[at] ?? 0;
    length += (byte & 0x7f) * 128 ** (at - 1);
    if ((byte & 0x80) === 0) return 1 + at + length;
  }
  return undefined;
}

/** The first packet of a connection, and all that has come up to now. */
export interface ConnectRequest {
  packet: IConnectPacket;
  bytes: Buffer;
}

/**
 * Reads the CONNECT packet and leaves the stream paused.
 * @param hold told how many bytes more are held; false refuses them
 * @throws Error for any other packet, one too large, malformed, or not complete within 10 s
 */
export function readConnect(stream: Duplex, hold: (bytes: number) => boolean): Promise<ConnectRequest> {
  return new Promise((resolve, reject) => {
    const fits = createFrameLimit();
    const chunks: Buffer[] = [];
    let start = Buffer.alloc(0);
    let received = 0;
    const fail = (reason: string) => {
      settle();
      reject(new Error(reason));
    };
    const closed = () => fail('closed');
    const timer = setTimeout(() => fail('late'), connect_limit_ms);

    function settle(): void {
      clearTimeout(timer);
      stream.off('data', take).off('end', closed).off('close', closed);
      stream.pause();
    }

    const faultOf = (chunk: Buffer) => {
      if (received === 0 && chunk[0] !== connect_type) return 'malformed';
      if (!fits(chunk)) return 'too_large';
      return hold(chunk.length) ? undefined : 'overloaded';
    };

    function take(chunk: Buffer): void {
      const fault = faultOf(chunk);
      if (fault !== undefined) {
        fail(fault);
        return;
      }
      chunks.push(chunk);
      received += chunk.length;
      if (start.length < 5) start = Buffer.concat([start, chunk.subarray(0, 5 - start.length)]);
      const size = packetSize(start);
      if (size === undefined || received < size) return;
      settle();
      const bytes = Buffer.concat(chunks);
      const packet = parseConnect(bytes.subarray(0, size));
      if (packet === undefined) reject(new Error('malformed'));
      else resolve({ packet, bytes });
    }

    stream.on('data', take).on('end', closed).on('close', closed);
  });
}

function parseConnect(bytes: Buffer): IConnectPacket | undefined {
  let connect: IConnectPacket | undefined;
  const reader = parser();
  reader.on('packet', (packet: Packet) => {
    if (packet.cmd === 'connect') connect = packet;
  });
  reader.on('error', () => {
    connect = undefined;
  });
  reader.parse(bytes);
  return connect;
}

/** The stream as the broker sees it: `first`, then what follows, until a packet is malformed or too large. */
export function limitPackets(stream: Duplex, first: Buffer, refused: () => void): Duplex {
  const fits = createFrameLimit();
  const inner = new Duplex({
    read() {
      stream.resume();
    },
    write(chunk: Buffer, _encoding, done) {
      stream.write(chunk, done);
    },
    // a packet is written in many pieces
    writev(chunks, done) {
      stream.write(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), done);
    },
    final(done) {
      stream.end(done);
    },
    destroy(error, done) {
      stream.destroy();
      done(error);
    },
  });
  const take = (chunk: Buffer) => {
    if (!fits(chunk)) {
      refused();
      inner.destroy();
    } else if (!inner.push(chunk)) stream.pause();
  };
  stream.on('data', take);
  stream.on('end', () => inner.push(null));
  stream.on('close', () => inner.destroy());
  take(first);
  return inner;
}

/** Why a connection is refused, as CONNACK says it (MQTT 3.1.1 §3.2.2.3). */
export const refusals = { version: 1, identifier: 2, unavailable: 3, credentials: 4, unauthorized: 5 } as const;
export type Refusal = keyof typeof refusals;

const linger_ms = 1000;

/** Answers CONNACK and closes. */
export function refuseConnection(stream: Duplex, refusal: Refusal, protocol_version: number | undefined): void {
  // clients of version 5 read a CONNACK of their own
  const unsupported = Buffer.from([0x20, 3, 0, 0x84, 0]);
  stream.end(protocol_version === 5 ? unsupported : Buffer.from([0x20, 2, 0, refusals[refusal]]));
  stream.resume();
  setTimeout(() => stream.destroy(), linger_ms).unref();
}
