import { Duplex } from 'node:stream';

/** The largest packet, its header included (reference/mqtt.md#packet-limits). */
export const packet_limit_bytes = 512 * 1024;

/** Tracks packet boundaries in a stream of bytes. @returns a check of the next bytes: false once a packet is malformed or too large */
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

/** Wraps a stream for the broker: `first`, then the rest, until a packet is malformed or too large. */
export function limitPackets(stream: Duplex, first: Buffer, onTooLarge: () => void): Duplex {
  const isWithinLimits = createFrameLimit();
  const inner = new Duplex({
    read() {
      stream.resume();
    },
    write(chunk: Buffer, _encoding, done) {
      stream.write(chunk, done);
    },
    // aedes writes a packet in many pieces
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
  const forward = (chunk: Buffer) => {
    if (!isWithinLimits(chunk)) {
      onTooLarge();
      inner.destroy();
    } else if (!inner.push(chunk)) stream.pause();
  };
  stream.on('data', forward);
  stream.on('end', () => inner.push(null));
  stream.on('close', () => inner.destroy());
  forward(first);
  return inner;
}
