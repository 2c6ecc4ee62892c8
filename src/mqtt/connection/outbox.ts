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
export type Outbox = ReturnType<typeof createOutbox>;

/** @param onStuck is called if the client reads nothing for 5 s */
export function createOutbox(stream: Duplex, onStuck: () => void) {
  let pending: Buffer[] = [];
  let pending_bytes = 0;
  let isOpen = true;
  let isScheduled = false;
  let read: { promise: Promise<void>; resolve: () => void; timer: NodeJS.Timeout } | undefined;
  let onEnded: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    onEnded = resolve;
  });

  const isBehind = () => stream.writableLength > 0 || pending_bytes > max_turn_bytes;

  function settleReaders(): void {
    if (read === undefined) return;
    if (isOpen && isBehind()) {
      read.timer.refresh();
      return;
    }
    clearTimeout(read.timer);
    read.resolve();
    read = undefined;
  }

  function write(): void {
    isScheduled = false;
    if (pending_bytes === 0 || stream.destroyed || stream.writableEnded) return;
    const bytes = pending.length === 1 ? (pending[0] as Buffer) : Buffer.concat(pending, pending_bytes);
    pending = [];
    pending_bytes = 0;
    // it is no error that a client has left
    stream.write(bytes, settleReaders);
  }

  function whenRead(): Promise<void> | undefined {
    if (!isOpen || !isBehind()) return undefined;
    if (read !== undefined) return read.promise;
    let resolve: () => void = () => undefined;
    const promise = new Promise<void>((settle) => {
      resolve = settle;
    });
    read = { promise, resolve, timer: setTimeout(onStuck, stuck_ms).unref() };
    return promise;
  }

  function abandon(): void {
    isOpen = false;
    settleReaders();
    onEnded();
  }

  return {
    // V8 makes a hidden class for each object with getters
    /** False once the connection is over, though the client may still read the last bytes. */
    isOpen: () => isOpen,
    waitingBytes: () => pending_bytes + stream.writableLength,
    /** Writes what is pushed in one turn of the event loop together. */
    push(bytes: Buffer): void {
      if (!isOpen) return;
      pending.push(bytes);
      pending_bytes += bytes.length;
      if (isScheduled) return;
      isScheduled = true;
      setImmediate(write);
    },
    /** @returns undefined while the client reads, else a promise that resolves when it has read enough or leaves */
    whenRead,
    /** Resolves when everything is handed to the network, or after 1 s. */
    async flush(): Promise<void> {
      write();
      const flushed = awaitLater(whenRead());
      if (flushed !== undefined) await Promise.race([flushed, sleep(linger_ms, undefined, { ref: false })]);
    },
    /** Ends the connection. */
    close(last_bytes?: Buffer): void {
      if (!isOpen) return;
      write();
      abandon();
      closeGently(stream, last_bytes);
    },
    /** Leaves the stream to others. */
    abandon,
    /** Resolves when the connection ends. */
    ended,
  };
}
