import type { Duplex } from 'node:stream';
import { awaitLater } from '../../lib/promises.js';
import { createFrameReader, type FrameError } from './frames.js';

/** The bytes that a connection has sent and that the broker holds. */
export interface InputMemory {
  /** Sets the function to call when the connection may be read again. */
  onRoom(readOn: () => void): void;
  /** Reports whether the connection may be read. */
  hasRoom(): boolean;
  /** Counts a chunk. @returns undefined, or if it does not fit, a promise that rejects if it never will */
  add(bytes: number): Promise<void> | undefined;
  /** The broker needs no memory for a packet any more. */
  finish(bytes: number): void;
}

interface InputOptions {
  memory: InputMemory;
  /** Handles a packet. @returns a promise while the broker is busy with it, which never rejects */
  handle(packet: Buffer): Promise<void> | undefined;
  onError(error: FrameError): void;
  /** The client is gone, or there is no memory for what it sends. */
  onLeft(): void;
}

/** The packets of a client. */
export interface Input {
  /** Takes bytes that were received before. */
  start(received: Buffer): void;
  /** Reads no more, and calls back once all packets are handled. */
  stop(idle: () => void): void;
}

/** Reads the packets of a stream while there is memory for them. */
export function createInput(stream: Duplex, { memory, handle, onError, onLeft }: InputOptions): Input {
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
    start(received) {
      memory.onRoom(readOn);
      stream.on('data', receive).on('end', onLeft).on('close', onLeft);
      receive(received);
    },
    stop(idle) {
      isStopped = true;
      stream.off('data', receive).off('end', onLeft).off('close', onLeft);
      onIdle = idle;
      if (handling === 0) idle();
    },
  };
}
