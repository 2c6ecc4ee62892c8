import type { Log } from '../db/database.js';

/** Notes that something went wrong. */
export type LogWarning = (message: string, fields: object) => void;

const quiet_ms = 1000;

/** A line of each kind at most once a second, with how many there were: what a client repeats must not fill the log. */
export function rateLimited(log: Log): LogWarning {
  const kinds = new Map<string, { quiet_until: number; count: number }>();
  return (message, fields) => {
    const now = performance.now();
    const kind = kinds.get(message) ?? { quiet_until: 0, count: 0 };
    kinds.set(message, kind);
    kind.count++;
    if (now < kind.quiet_until) return;
    log.warn({ ...fields, count: kind.count }, message);
    kind.quiet_until = now + quiet_ms;
    kind.count = 0;
  };
}
