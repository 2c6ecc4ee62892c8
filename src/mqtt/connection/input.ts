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

/** Reads the packets of a stream while there is memory for them, which is given back when the broker has handled them. */
export class Input {
  private readonly split = createFrameReader();
  /** Parts of the pool, in the order of the bytes. */
  private readonly parts: { bytes: number; release: Release }[] = [];
  /** Created by the first wait: most connections never wait. */
  private left: AbortController | undefined;
  private held_bytes = 0;
  /** Bytes of the next packet that are counted already. */
  private reserved_bytes = 0;
  private handling = 0;
  private isWaiting = false;
  private isStopped = false;
  private isClosed = false;
  private onIdle: (() => void) | undefined;

  constructor(
    private readonly stream: Duplex,
    private readonly options: InputOptions,
  ) {}

  /** Takes bytes that were received before. */
  start(received: Buffer): void {
    const { onLeft } = this.options;
    this.stream.on('data', this.receive).on('end', onLeft).on('close', onLeft);
    this.receive(received);
  }

  /** Reads no more, and calls back once all packets are handled. */
  stop(onIdle?: () => void): void {
    const { onLeft } = this.options;
    this.isStopped = true;
    this.stream.off('data', this.receive).off('end', onLeft).off('close', onLeft);
    this.onIdle = onIdle;
    if (this.handling === 0) onIdle?.();
  }

  /** Stops, and gives everything back when the broker has stored it. */
  close(): void {
    this.stop();
    this.isClosed = true;
    this.left?.abort();
    const releaseAll = () => {
      for (const { release } of this.parts.splice(0)) release();
    };
    this.options.sender.publishQueue.then(releaseAll, releaseAll);
  }

  private readonly receive = (chunk: Buffer): void => {
    if (this.isStopped) return;
    const reserved = Math.min(this.reserved_bytes, chunk.length);
    this.reserved_bytes -= reserved;
    this.reserve(chunk.length - reserved, () => {
      const missing = this.take(chunk);
      if (this.isStopped) return;
      if (this.stream.readableEnded || this.stream.destroyed) return this.options.onLeft();
      // connections that each wait for the rest of a packet would wait for each other
      this.reserve(missing - this.reserved_bytes, () => this.readOn());
      this.reserved_bytes = Math.max(this.reserved_bytes, missing);
    });
  };

  /** @returns the bytes that complete the next packet */
  private take(chunk: Buffer): number {
    const { packets, missing_bytes, error } = this.split(chunk);
    for (const packet of packets) {
      if (this.isStopped) return 0;
      const { length } = packet;
      this.handling++;
      const handled = awaitLater(this.options.handle(packet));
      const done = () => this.finish(length);
      if (handled === undefined) done();
      else handled.then(done, done);
    }
    if (error === undefined || this.isStopped) return missing_bytes;
    this.options.onError(error);
    return 0;
  }

  private finish(bytes: number): void {
    const isFull = this.held_bytes >= max_session_bytes;
    this.handling--;
    this.giveBack(bytes);
    if (isFull) this.readOn();
    if (this.handling === 0) this.onIdle?.();
  }

  private readOn(): void {
    if (this.isStopped) return;
    if (!this.isWaiting && this.held_bytes < max_session_bytes) this.stream.resume();
    else this.stream.pause();
  }

  /** Takes memory, and reads nothing until there is some. */
  private reserve(bytes: number, next: () => void): void {
    if (bytes <= 0) return void next();
    const { shares, sender, onLeft } = this.options;
    const hold = (release: Release) => {
      if (this.isClosed) release();
      else this.parts.push({ bytes, release });
      next();
    };
    this.held_bytes += bytes;
    const taken = shares.tryTake(sender.account, bytes);
    if (taken !== undefined) return void hold(taken);
    this.isWaiting = true;
    this.stream.pause();
    this.left ??= new AbortController();
    shares.acquire(sender.account, { amount: bytes, signal: this.left.signal }).then((acquired) => {
      this.isWaiting = false;
      hold(acquired);
    }, onLeft);
  }

  private giveBack(bytes: number): void {
    const { parts } = this;
    this.held_bytes -= bytes;
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
}
