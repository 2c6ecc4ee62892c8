import type { Duplex } from 'node:stream';
import { type IConnectPacket, type Packet, parser } from 'mqtt-packet';
import { createFrameLimit } from './packet-limits.js';

const connect_limit_ms = 10_000;
const connect_type = 0x10;

/** @returns the size of the first packet in bytes, undefined while its header is incomplete */
function packetSize(start: Buffer): number | undefined {
  let length = 0;
  for (let at = 1; at < start.length; at++) {
    const byte = start[at] ?? 0;
    length += (byte & 0x7f) * 128 ** (at - 1);
    if ((byte & 0x80) === 0) return 1 + at + length;
  }
  return undefined;
}

/** The CONNECT packet of a connection, with all bytes received so far. */
export interface ConnectRequest {
  packet: IConnectPacket;
  bytes: Buffer;
}

/**
 * Reads the CONNECT packet and leaves the stream paused.
 * @param reserve reserves memory for the next bytes, or returns false
 * @throws Error for any other packet, one too large, malformed, or not complete within 10 s
 */
export function readConnect(stream: Duplex, reserve: (bytes: number) => boolean): Promise<ConnectRequest> {
  return new Promise((resolve, reject) => {
    const isWithinLimits = createFrameLimit();
    const chunks: Buffer[] = [];
    let start = Buffer.alloc(0);
    let received = 0;
    const fail = (reason: string) => {
      detach();
      reject(new Error(reason));
    };
    const onClosed = () => fail('closed');
    const timer = setTimeout(() => fail('late'), connect_limit_ms);

    function detach(): void {
      clearTimeout(timer);
      stream.off('data', receive).off('end', onClosed).off('close', onClosed);
      stream.pause();
    }

    const findFault = (chunk: Buffer) => {
      if (received === 0 && chunk[0] !== connect_type) return 'malformed';
      if (!isWithinLimits(chunk)) return 'too_large';
      return reserve(chunk.length) ? undefined : 'overloaded';
    };

    function receive(chunk: Buffer): void {
      const fault = findFault(chunk);
      if (fault !== undefined) {
        fail(fault);
        return;
      }
      chunks.push(chunk);
      received += chunk.length;
      if (start.length < 5) start = Buffer.concat([start, chunk.subarray(0, 5 - start.length)]);
      const size = packetSize(start);
      if (size === undefined || received < size) return;
      detach();
      const bytes = Buffer.concat(chunks);
      const packet = parseConnect(bytes.subarray(0, size));
      if (packet === undefined) reject(new Error('malformed'));
      else resolve({ packet, bytes });
    }

    stream.on('data', receive).on('end', onClosed).on('close', onClosed);
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

/** CONNACK return codes (MQTT 3.1.1 §3.2.2.3). */
export const refusals = { version: 1, identifier: 2, unavailable: 3, credentials: 4, unauthorized: 5 } as const;
export type Refusal = keyof typeof refusals;

const linger_ms = 1000;

/** Sends a CONNACK with the reason and closes the connection. */
export function refuseConnection(stream: Duplex, refusal: Refusal, protocol_version: number | undefined): void {
  // the CONNACK of MQTT 5 has another layout: reason 0x84, unsupported protocol version
  const unsupported = Buffer.from([0x20, 3, 0, 0x84, 0]);
  stream.end(protocol_version === 5 ? unsupported : Buffer.from([0x20, 2, 0, refusals[refusal]]));
  stream.resume();
  setTimeout(() => stream.destroy(), linger_ms).unref();
}
