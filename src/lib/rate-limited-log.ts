/** Logs a line; `err` in `fields` is the error that caused it. */
export type LogLine = (message: string, fields: object) => void;

type WriteLine = (fields: object, message: string) => void;
type Log = Readonly<Record<'warn' | 'error', WriteLine>> & { readonly debug?: WriteLine };

const period_ms = 60_000;

/**
 * Logs each message at most once a minute for each cause, with a count, so that neither a client nor a failure that all requests
 * meet can fill the log; those in between have the level `debug`. Messages come from a bounded set.
 */
export function createRateLimitedLog(
  log: Log,
  level: 'warn' | 'error' = 'warn',
  readTime = (): number => performance.now(),
): LogLine {
  const kinds = new Map<string, { quiet_until: number; count: number }>();
  return (message, fields) => {
    const now = readTime();
    const key = `${message} ${describeCause(fields)}`;
    const kind = kinds.get(key) ?? { quiet_until: 0, count: 0 };
    kinds.set(key, kind);
    kind.count++;
    if (now < kind.quiet_until) {
      log.debug?.(fields, message);
      return;
    }
    log[level]({ ...fields, count: kind.count }, message);
    kind.quiet_until = now + period_ms;
    kind.count = 0;
  };
}

/** Class and code of an error: messages of the driver name connections and times, and differ for one failure. */
function describeCause({ err }: { err?: unknown }): string {
  if (typeof err !== 'object' || err === null) return '';
  const { code = '' } = err as { code?: unknown };
  return `${err.constructor?.name} ${code}`;
}
