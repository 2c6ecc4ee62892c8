import { setTimeout as sleep } from 'node:timers/promises';

const bytes_per_s = 512 * 1024;
const burst_bytes = 16 * 1024 * 1024;
/** The other fields of a message in the oplog. */
const overhead_bytes = 256;

/** Limits what an account writes for other instances, because it passes through the oplog (reference/limits.md#values). */
export type ForwardRate = ReturnType<typeof createForwardRate>;

/** Creates a full token bucket. Nothing waits when the service stops. */
export function createForwardRate(stopped: AbortSignal) {
  let tokens = burst_bytes;
  let filled_at = performance.now();

  function fill(): void {
    const now = performance.now();
    tokens = Math.min(burst_bytes, tokens + ((now - filled_at) / 1000) * bytes_per_s);
    filled_at = now;
  }

  return {
    /** Admits a message at once. @returns false if it is beyond the rate */
    tryTake(payload_bytes: number): boolean {
      const bytes = payload_bytes + overhead_bytes;
      fill();
      if (tokens < bytes) return false;
      tokens -= bytes;
      return true;
    },
    /** Admits a message when the rate allows it, in the order of the calls. */
    async take(payload_bytes: number): Promise<void> {
      fill();
      tokens -= payload_bytes + overhead_bytes;
      const wait_ms = (-tokens / bytes_per_s) * 1000;
      if (wait_ms > 0) await sleep(wait_ms, undefined, { signal: stopped }).catch(() => undefined);
    },
  };
}
