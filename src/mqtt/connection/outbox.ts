import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { awaitLater } from '../../lib/promises.js';

const linger_ms = 1000;
/** A client that has read nothing of what waits for so long is disconnected (reference/mqtt.md#delivery). */
const stuck_ms = 5000;
/** Beyond what is written in a turn, a message waits for those before it. */
const max_turn_bytes = 16 * 1024;

/** Sends what was written and closes a stream; reads on, because unread bytes would reset the connection. */
export function closeGently(stream: Duplex, last_bytes?: Buffer): void {
  stream.end(last_bytes);
  stream.resume();
  setTimeout(() => stream.destroy(), linger_ms).unref();
}

/** Messages on their way to a client. */
export class Outbox {
  /** Resolves when the connection ends. */
  readonly ended: Promise<void>;
  private onEnded: () => void = () => undefined;
  private pending: Buffer[] = [];
  private pending_bytes = 0;
  private isClosed = false;
  private read: { promise: Promise<void>; resolve: () => void; timer: NodeJS.Timeout } | undefined;

  /** @param onStuck is called if the client reads nothing for 5 s */
  constructor(
    private readonly stream: Duplex,
    private readonly onStuck: () => void,
  ) {
    this.ended = new Promise<void>((resolve) => {
      this.onEnded = resolve;
    });
  }

  /** False once the connection is over, though the client may still read the last bytes. */
  isOpen(): boolean {
    return !this.isClosed;
  }

  waitingBytes(): number {
    return this.pending_bytes + this.stream.writableLength;
  }

  /** Writes what is pushed in one turn of the event loop together. */
  push(bytes: Buffer): void {
    if (this.isClosed) return;
    this.pending_bytes += bytes.length;
    if (this.pending.push(bytes) === 1) setImmediate(() => this.write());
  }

  /** @returns undefined while the client reads, else a promise that resolves when it has read enough or leaves */
  whenRead(): Promise<void> | undefined {
    if (this.isClosed || !this.isBehind()) return undefined;
    if (this.read !== undefined) return this.read.promise;
    let resolve: () => void = () => undefined;
    const promise = new Promise<void>((settle) => {
      resolve = settle;
    });
    this.read = { promise, resolve, timer: setTimeout(this.onStuck, stuck_ms).unref() };
    return promise;
  }

  /** Resolves when everything is handed to the network, or after 1 s. */
  async flush(): Promise<void> {
    this.write();
    const flushed = awaitLater(this.whenRead());
    if (flushed !== undefined) await Promise.race([flushed, sleep(linger_ms, undefined, { ref: false })]);
  }

  /** Ends the connection. */
  close(last_bytes?: Buffer): void {
    if (this.isClosed) return;
    this.write();
    this.abandon();
    closeGently(this.stream, last_bytes);
  }

  /** Leaves the stream to others. */
  abandon(): void {
    this.isClosed = true;
    this.settleReaders();
    this.onEnded();
  }

  private isBehind(): boolean {
    return this.stream.writableLength > 0 || this.pending_bytes > max_turn_bytes;
  }

  private settleReaders(): void {
    if (this.read === undefined) return;
    if (!this.isClosed && this.isBehind()) {
      this.read.timer.refresh();
      return;
    }
    clearTimeout(this.read.timer);
    this.read.resolve();
    this.read = undefined;
  }

  private write(): void {
    const { pending, pending_bytes, stream } = this;
    if (pending_bytes === 0 || stream.destroyed || stream.writableEnded) return;
    const bytes = pending.length === 1 ? (pending[0] as Buffer) : Buffer.concat(pending, pending_bytes);
    this.pending = [];
    this.pending_bytes = 0;
    // it is no error that a client has left
    stream.write(bytes, () => this.settleReaders());
  }
}
