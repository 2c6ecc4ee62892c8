import { awaitLater } from '../../lib/promises.js';
import { createShares, type Release, type Shares } from '../../lib/shares.js';
import { max_session_bytes } from '../connection/input.js';
import type { AcceptedMessage } from './message-store.js';

const max_account_bytes = 16 * 1024 * 1024;
const max_process_bytes = 64 * 1024 * 1024;
/** Connections of an account that wait for memory. Each has a chunk of at most 64 KiB; there is always room for a packet. */
const max_waiting = 200;
/** Objects and closures of a message. */
const message_overhead_bytes = 512;

/** Creates the pool of the bytes of all MQTT messages in memory. */
export function createMessageMemory(): Shares {
  return createShares({ capacity: max_process_bytes, max_per_account: max_account_bytes, max_waiting });
}

/** Estimates the memory of a message. */
export function memorySizeOf({ payload }: { payload: Buffer }): number {
  return payload.length + message_overhead_bytes;
}

/** Copies a payload that would keep a much larger chunk in memory. */
export function toOwnPayload(payload: Buffer): Buffer {
  return payload.length * 2 < payload.buffer.byteLength ? Buffer.from(payload) : payload;
}

/** More than a packet, and less than what ends a client that does not read. */
const max_undelivered_bytes = max_session_bytes * 0.625;

/**
 * Creates the function that delivers messages of other instances in their order, as fast as the subscribers of the account
 * read, because their publishers do not wait for these. When the account has no memory left, messages of QoS 0 are dropped,
 * and what waits is delivered, which ends the subscribers that do not read.
 * @param tryTake takes memory for a message that waits
 * @param route hands a message to the subscribers, and returns a promise while some of them have not read what they have
 */
export function createForwardedDelivery(
  tryTake: (bytes: number) => Release | undefined,
  route: (message: AcceptedMessage) => Promise<unknown> | undefined,
  onFull: (message: AcceptedMessage) => void,
): (message: AcceptedMessage) => void {
  const waiting: { message: AcceptedMessage; release: Release | undefined }[] = [];
  let undelivered_bytes = 0;

  function routeWaiting(max_bytes: number): void {
    while (undelivered_bytes < max_bytes) {
      const next = waiting.shift();
      if (next === undefined) break;
      next.release?.();
      const bytes = memorySizeOf(next.message);
      const delivered = awaitLater(route(next.message));
      if (delivered === undefined) continue;
      undelivered_bytes += bytes;
      const finishOne = () => {
        undelivered_bytes -= bytes;
        routeWaiting(max_undelivered_bytes);
      };
      delivered.then(finishOne, finishOne);
    }
  }

  return (message) => {
    const release = tryTake(memorySizeOf(message));
    if (release === undefined && message.qos === 0) {
      onFull(message);
      return;
    }
    waiting.push({ message: { ...message, payload: toOwnPayload(message.payload) }, release });
    routeWaiting(release === undefined ? Number.POSITIVE_INFINITY : max_undelivered_bytes);
  };
}
