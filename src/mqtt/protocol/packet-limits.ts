import { Duplex } from 'node:stream';
import { awaitLater } from '../../lib/promises.js';
import type { InputMemory } from '../sessions/message-memory.js';
import { findProtocolError } from './packet-validation.js';

/** The largest packet, its header included (reference/mqtt.md#packet-limits). */
export const packet_limit_bytes = 512 * 1024;
const PUBLISH = 3;
const DISCONNECT = 14;
/** One byte of type and flags, and up to four of the length (MQTT 3.1.1 §2.2.3). */
const max_header_bytes = 5;

const linger_ms = 1000;

/** Sends what was written and closes a stream; reads on, because unread bytes would reset the connection. */
export function closeGently(stream: Duplex, last_bytes?: Buffer): void {
  stream.end(last_bytes);
  stream.resume();
  setTimeout(() => stream.destroy(), linger_ms).unref();
}

export type FrameError = 'too_large' | 'malformed';

/** The packets that a chunk completes; after an error there are no more. */
interface Frames {
  packets: readonly Buffer[];
  /** Bytes of an incomplete packet that have not arrived. */
  missing_bytes: number;
  error?: FrameError;
}

/** Cuts a stream of bytes into packets. @returns a function that takes the next bytes */
export function createPacketSplitter(): (chunk: Buffer) => Frames {
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
      const size = packetSize(bytes.subarray(at, at + max_header_bytes));
      if (size === 'malformed') return { packets, missing_bytes: 0, error: size };
      if (size > packet_limit_bytes) return { packets, missing_bytes: 0, error: 'too_large' };
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

const isPublish = ([first = 0]: Buffer) => first >> 4 === PUBLISH;

/** Finds the messages among what a client has sent. */
export function findPublishes(received: Buffer): Buffer[] {
  return createPacketSplitter()(received).packets.filter(isPublish);
}

/** @returns the size of a packet in bytes from its first bytes, 0 while its header is incomplete */
function packetSize(header: Buffer): number | 'malformed' {
  let length = 0;
  for (let at = 1; at < header.length; at++) {
    const byte = header[at] ?? 0;
    length += (byte & 0x7f) * 128 ** (at - 1);
    if ((byte & 0x80) === 0) return 1 + at + length;
  }
  return header.length < max_header_bytes ? 0 : 'malformed';
}

interface PacketFilter {
  /** All bytes received so far, CONNECT included. */
  received: Buffer;
  /** The protocol level of CONNECT. */
  level: number | undefined;
  /** Limits what is read. */
  bytes: InputMemory;
  /** Reports the error that closes the connection. */
  onError: (error: string) => void;
}

/** A stream as aedes reads it. */
export interface LimitedStream {
  conn: Duplex;
  /** Reads no more, and ends the connection once the messages so far are acknowledged. */
  leave(): void;
}

/**
 * Wraps a stream for aedes, which gets only whole packets that pass the checks it does not make itself. The first packet
 * that fails one closes the connection. aedes learns that a client leaves when the messages before are handled.
 */
export function limitPackets(stream: Duplex, { received, level, bytes, onError }: PacketFilter): LimitedStream {
  let isWanted = false;
  let isFinishing = false;
  let reserved_bytes = 0;
  const readOn = () => {
    if (isWanted && bytes.hasRoom()) stream.resume();
  };
  bytes.onRoom(readOn);
  const split = createPacketSplitter();
  let onFlushed: () => void = () => undefined;
  // it is no error that a client has left
  const send = (bytes: Buffer, done: () => void) =>
    void stream.write(bytes, () => {
      done();
      if (inner.writableLength === 0) onFlushed();
    });
  const inner = new Duplex({
    read() {
      isWanted = true;
      readOn();
    },
    write(chunk: Buffer, _encoding, done) {
      send(chunk, done);
    },
    // aedes writes a packet in many pieces
    writev(chunks, done) {
      send(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), done);
    },
    final(done) {
      stream.end(done);
    },
    destroy(error, done) {
      bytes.close();
      stream.off('data', receive);
      if (error === null) closeGently(stream);
      else stream.destroy();
      done(error);
    },
  });

  /** Ends the connection once the messages so far are stored, handed to the subscribers and acknowledged. */
  function finish(end: () => void): void {
    if (isFinishing) return;
    isFinishing = true;
    bytes.whenIdle(() => {
      if (inner.writableLength === 0) return end();
      const timer = setTimeout(end, linger_ms).unref();
      onFlushed = () => {
        clearTimeout(timer);
        end();
      };
    });
  }

  const leave = () => finish(() => inner.push(null));

  function fail(error: string): void {
    onError(error);
    finish(() => inner.destroy());
  }

  /** @returns the bytes that complete the next packet */
  function forward(chunk: Buffer): number {
    if (inner.destroyed || isFinishing) return 0;
    const { packets, missing_bytes, error } = split(chunk);
    for (const packet of packets) {
      const protocolError = findProtocolError(packet);
      if (protocolError !== undefined) fail(protocolError);
      else if ((packet[0] ?? 0) >> 4 === DISCONNECT) finish(() => inner.push(packet));
      if (isFinishing) return 0;
      if (isPublish(packet)) bytes.begin(packet.length);
      if (!inner.push(level === 3 ? clearDup(packet) : packet)) isWanted = false;
      if (!isPublish(packet)) bytes.finish(packet.length);
    }
    if (error !== undefined) fail(error);
    return missing_bytes;
  }

  /** Reads nothing until there is memory. */
  function reserve(amount: number, next: () => void): void {
    const waiting = amount > 0 ? awaitLater(bytes.add(amount)) : undefined;
    if (waiting === undefined) {
      next();
      return;
    }
    stream.pause();
    waiting.then(next, () => inner.destroy());
  }

  function receive(chunk: Buffer): void {
    const reserved = Math.min(reserved_bytes, chunk.length);
    reserved_bytes -= reserved;
    reserve(chunk.length - reserved, () => {
      const missing = forward(chunk);
      if (stream.readableEnded || stream.destroyed) leave();
      // connections that each wait for the rest of a packet would wait for each other
      reserve(missing - reserved_bytes, () => {
        if (!isWanted || !bytes.hasRoom()) stream.pause();
        else stream.resume();
      });
      reserved_bytes = Math.max(reserved_bytes, missing);
    });
  }

  stream.on('data', receive).on('end', leave).on('close', leave);
  receive(received);
  return { conn: inner, leave };
}

/** PUBREL, SUBSCRIBE and UNSUBSCRIBE, whose DUP flag exists in MQTT 3.1 and is reserved in 3.1.1. */
const repeatableTypes: ReadonlySet<number> = new Set([6, 8, 10]);
const dup_flag = 0x08;

function clearDup(packet: Buffer): Buffer {
  const [first = 0] = packet;
  if (!repeatableTypes.has(first >> 4) || (first & dup_flag) === 0) return packet;
  return Buffer.concat([Buffer.from([first & ~dup_flag]), packet.subarray(1)]);
}
