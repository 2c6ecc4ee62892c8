import type { Duplex } from 'node:stream';
import { awaitLater } from '../../lib/promises.js';
import type { Release, Shares } from '../../lib/shares.js';
import { createFrameReader, type FrameError } from './frames.js';

/** Bytes that a connection has sent and that are not stored yet, and bytes that it has not read (reference/limits.md#values). */
export const max_session_bytes = 1024 * 1024;

interface InputOptions {
  /** The pool of the bytes of all connections. */
  shares: Shares;
  sender: {
    account: string;
    /** Settles when all publishes received so far are settled. */
    readonly publishQueue: Promise<void>;
  };
  /** Handles a packet. @returns a promise while the broker is busy with it, which never rejects */
  handle(packet: Buffer): Promise<void> | undefined;
  onError(error: FrameError): void;
  /** The client is gone, or there is no memory for what it sends. */
  onLeft(): void;
}

/** The packets of a client. */
export type Input = ReturnType<typeof createInput>;

/** Reads the packets of a stream while there is memory for them, which is given back when the broker has handled them. */
export function createInput(stream: Duplex, { shares, sender, handle, onError, onLeft }: InputOptions) {
  const split = createFrameReader();
  /** Parts of the pool, in the order of the bytes. */
  const parts: { bytes: number; release: Release }[] = [];
  /** Created by the first wait: most connections never wait. */
  let left: AbortController | undefined;
  let held_bytes = 0;
  /** Bytes of the next packet that are counted already. */
  let reserved_bytes = 0;
  let handling = 0;
  let isWaiting = false;
  let isStopped = false;
  let isClosed = false;
  let onIdle: () => void = () => undefined;

  function hold(bytes: number, release: Release): void {
    if (isClosed) release();
    else parts.push({ bytes, release });
  }

  function giveBack(bytes: number): void {
    held_bytes -= bytes;
    let rest = bytes;
    for (let [first] = parts; first !== undefined && rest > 0; [first] = parts) {
      const freed = Math.min(rest, first.bytes);
      first.bytes -= freed;
      rest -= freed;
      if (first.bytes > 0) break;
      first.release();
      parts.shift();
    }
  }

  function finish(bytes: number): void {
    const isFull = held_bytes >= max_session_bytes;
    handling--;
    giveBack(bytes);
    if (isFull) readOn();
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

  /** @returns false if there is no memory now */
  function tryHold(bytes: number): boolean {
    held_bytes += bytes;
    const release = shares.tryTake(sender.account, bytes);
    if (release !== undefined) hold(bytes, release);
    return release !== undefined;
  }

  /** Takes memory, and reads nothing until there is some. */
  function reserve(bytes: number, next: () => void): void {
    if (bytes <= 0 || tryHold(bytes)) {
      next();
      return;
    }
    isWaiting = true;
    stream.pause();
    left ??= new AbortController();
    shares.acquire(sender.account, { amount: bytes, signal: left.signal }).then((acquired) => {
      isWaiting = false;
      hold(bytes, acquired);
      next();
    }, onLeft);
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
    if (!isWaiting && held_bytes < max_session_bytes) stream.resume();
    else stream.pause();
  }

  /** Reads no more, and calls back once all packets are handled. */
  function stop(idle: () => void): void {
    isStopped = true;
    stream.off('data', receive).off('end', onLeft).off('close', onLeft);
    onIdle = idle;
    if (handling === 0) idle();
  }

  return {
    /** Takes bytes that were received before. */
    start(received: Buffer): void {
      stream.on('data', receive).on('end', onLeft).on('close', onLeft);
      receive(received);
    },
    stop,
    /** Stops, and gives everything back when the broker has stored it. */
    close(): void {
      stop(() => undefined);
      isClosed = true;
      left?.abort();
      const releaseAll = () => {
        for (const { release } of parts.splice(0)) release();
      };
      sender.publishQueue.then(releaseAll, releaseAll);
    },
  };
}
