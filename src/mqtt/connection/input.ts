import type { Duplex } from 'node:stream';
import { awaitLater } from '../../lib/promises.js';
import type { Release, Shares } from '../../lib/shares.js';
import { createFrameReader, type FrameError } from './frames.js';

/** Bytes that a connection has sent and that are not stored yet, and bytes that it has not read (reference/limits.md#values). */
export const max_session_bytes = 1024 * 1024;

interface Sender {
  account: string;
  /** Settles when all publishes received so far are settled. */
  readonly publishQueue: Promise<void>;
}

/** The bytes of a connection that the broker holds, until it is closed. */
export type CountedInput = ReturnType<typeof countInput>;

/** Counts the bytes of a connection in the pool of all. */
export function countInput(shares: Shares, sender: Sender) {
  const chunks: { bytes: number; release: Release }[] = [];
  let isClosed = false;
  /** Created by the first wait: most connections never wait. */
  let left: AbortController | undefined;
  let held_bytes = 0;
  let isWaiting = false;
  let readOn: () => void = () => undefined;

  function hold(bytes: number, release: Release): void {
    if (isClosed) release();
    else chunks.push({ bytes, release });
  }

  const hasRoom = () => !isWaiting && held_bytes < max_session_bytes;

  async function waitForRoom(bytes: number): Promise<void> {
    isWaiting = true;
    left ??= new AbortController();
    hold(bytes, await shares.acquire(sender.account, { amount: bytes, signal: left.signal }));
    isWaiting = false;
  }

  function finish(bytes: number): void {
    const isFull = held_bytes >= max_session_bytes;
    held_bytes -= bytes;
    let rest = bytes;
    for (let [first] = chunks; first !== undefined && rest > 0; [first] = chunks) {
      const part = Math.min(rest, first.bytes);
      first.bytes -= part;
      rest -= part;
      if (first.bytes > 0) break;
      first.release();
      chunks.shift();
    }
    if (isFull && hasRoom()) readOn();
  }

  return {
    /** Sets the function to call when the connection may be read again. */
    onRoom(callback: () => void): void {
      readOn = callback;
    },
    /** Reports whether the connection may be read. */
    hasRoom,
    /** Counts a chunk. @returns undefined, or if it does not fit, a promise that rejects if it never will */
    add(bytes: number): Promise<void> | undefined {
      held_bytes += bytes;
      const release = shares.tryTake(sender.account, bytes);
      if (release === undefined) return waitForRoom(bytes);
      hold(bytes, release);
      return undefined;
    },
    /** The broker needs no memory for a packet any more. */
    finish,
    /** Ends the count: everything is given back when the broker has stored it. */
    close(): void {
      isClosed = true;
      left?.abort();
      const releaseAll = () => {
        for (const { release } of chunks.splice(0)) release();
      };
      sender.publishQueue.then(releaseAll, releaseAll);
    },
  };
}

interface InputOptions {
  memory: CountedInput;
  /** Handles a packet. @returns a promise while the broker is busy with it, which never rejects */
  handle(packet: Buffer): Promise<void> | undefined;
  onError(error: FrameError): void;
  /** The client is gone, or there is no memory for what it sends. */
  onLeft(): void;
}

/** The packets of a client. */
export type Input = ReturnType<typeof createInput>;

/** Reads the packets of a stream while there is memory for them. */
export function createInput(stream: Duplex, { memory, handle, onError, onLeft }: InputOptions) {
  const split = createFrameReader();
  let reserved_bytes = 0;
  let handling = 0;
  let isStopped = false;
  let onIdle: () => void = () => undefined;

  function finish(bytes: number): void {
    handling--;
    memory.finish(bytes);
    if (handling === 0) onIdle();
  }

  /** @returns the bytes that complete the next packet */
  function take(chunk: Buffer): number {
    const { packets, missing_bytes, error } = split(chunk);
    for (const packet of packets) {
      if (isStopped) return 0;
      const { length } = packet;
      handling++;
      const handled = awaitLater(handle(packet));
      const done = () => finish(length);
      if (handled === undefined) done();
      else handled.then(done, done);
    }
    if (error === undefined || isStopped) return missing_bytes;
    onError(error);
    return 0;
  }

  /** Reads nothing until there is memory. */
  function reserve(amount: number, next: () => void): void {
    const waiting = amount > 0 ? awaitLater(memory.add(amount)) : undefined;
    if (waiting === undefined) {
      next();
      return;
    }
    stream.pause();
    waiting.then(next, onLeft);
  }

  function receive(chunk: Buffer): void {
    if (isStopped) return;
    const reserved = Math.min(reserved_bytes, chunk.length);
    reserved_bytes -= reserved;
    reserve(chunk.length - reserved, () => {
      const missing = take(chunk);
      if (isStopped) return;
      if (stream.readableEnded || stream.destroyed) return onLeft();
      // connections that each wait for the rest of a packet would wait for each other
      reserve(missing - reserved_bytes, readOn);
      reserved_bytes = Math.max(reserved_bytes, missing);
    });
  }

  function readOn(): void {
    if (isStopped) return;
    if (memory.hasRoom()) stream.resume();
    else stream.pause();
  }

  return {
    /** Takes bytes that were received before. */
    start(received: Buffer): void {
      memory.onRoom(readOn);
      stream.on('data', receive).on('end', onLeft).on('close', onLeft);
      receive(received);
    },
    /** Reads no more, and calls back once all packets are handled. */
    stop(idle: () => void): void {
      isStopped = true;
      stream.off('data', receive).off('end', onLeft).off('close', onLeft);
      onIdle = idle;
      if (handling === 0) idle();
    },
  };
}
