/** The largest packet, its header included (reference/mqtt.md#packet-limits). */
export const packet_limit_bytes = 512 * 1024;
/** One byte of type and flags, and up to four of the length (MQTT 5 §2.1.4). */
const max_header_bytes = 5;

export type FrameError = 'too_large' | 'malformed';

/** The packets that a chunk completes; after an error there are no more. */
interface Frames {
  packets: readonly Buffer[];
  /** Bytes of an incomplete packet that have not arrived. */
  missing_bytes: number;
  error?: FrameError;
}

/** Cuts a stream of bytes into packets. @returns a function that takes the next bytes */
export function createFrameReader(max_bytes = packet_limit_bytes): (chunk: Buffer) => Frames {
  let pending: Buffer[] = [];
  let pending_bytes = 0;
  let next_packet_bytes = 0;

  return (chunk) => {
    pending.push(chunk);
    pending_bytes += chunk.length;
    const missing = next_packet_bytes - pending_bytes;
    if (missing > 0) return { packets: [], missing_bytes: missing };
    const bytes = pending.length === 1 ? chunk : Buffer.concat(pending);
    const packets: Buffer[] = [];
    let at = 0;
    for (;;) {
      const size = packetSize(bytes, at);
      if (size === 'malformed') return { packets, missing_bytes: 0, error: size };
      if (size > max_bytes) return { packets, missing_bytes: 0, error: 'too_large' };
      next_packet_bytes = size;
      if (size === 0 || at + size > bytes.length) break;
      packets.push(bytes.subarray(at, at + size));
      at += size;
    }
    pending_bytes = bytes.length - at;
    pending = pending_bytes === 0 ? [] : [bytes.subarray(at)];
    return { packets, missing_bytes: Math.max(0, next_packet_bytes - pending_bytes) };
  };
}

/** @returns the size in bytes of the packet at an offset, 0 while its header is incomplete */
function packetSize(bytes: Buffer, start: number): number | 'malformed' {
  let length = 0;
  for (let at = 1; at < max_header_bytes; at++) {
    const byte = bytes[start + at];
    if (byte === undefined) return 0;
    length += (byte & 0x7f) * 128 ** (at - 1);
    if ((byte & 0x80) === 0) return 1 + at + length;
  }
  return 'malformed';
}

const PUBLISH = 3;

/** Finds the messages among what a client has sent. */
export function findPublishes(received: Buffer): Buffer[] {
  return createFrameReader()(received).packets.filter(([first = 0]) => first >> 4 === PUBLISH);
}
