import type { Log } from '../db/database.js';

/** Logs a warning. */
export type LogWarning = (message: string, fields: object) => void;

const period_ms = 1000;

/** Logs each message at most once a second, with a count, so that a client cannot fill the log. */
export function createRateLimitedLog(log: Log): LogWarning {
  const kinds = new Map<string, { quiet_until: number; count: number }>();
  return (message, fields) => {
    const now = performance.now();
    const kind = kinds.get(message) ?? { quiet_until: 0, count: 0 };
    kinds.set(message, kind);
    kind.count++;
    if (now < kind.quiet_until) return;
    log.warn({ ...fields, count: kind.count }, message);
    kind.quiet_until = now + period_ms;
    kind.count = 0;
  };
}
