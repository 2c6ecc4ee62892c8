/** Logs a line; `err` in `fields` is the error that caused it, `name` whom or what it is about. */
export type LogLine = (message: string, fields: object, name?: string) => void;

type WriteLine = (fields: object, message: string) => void;
type Log = Readonly<Record<'warn' | 'error', WriteLine>> & { readonly debug?: WriteLine };

const period_ms = 60_000;
/** Names of one kind that get lines of their own within a minute: clients choose them. */
const max_names = 1000;
const max_name_length = 300;

interface Kind {
  quiet_until: number;
  count: number;
}

/**
 * Logs each message at most once a minute for each cause and name, with a count, so that neither a client nor a failure that
 * all requests meet can fill the log; those in between have the level `debug`. Beyond 1,000 names a minute the others
 * share a line. Messages come from a bounded set.
 */
export function createRateLimitedLog(
  log: Log,
  level: 'warn' | 'error' = 'warn',
  readTime = (): number => performance.now(),
): LogLine {
  const namesByKind = new Map<string, Map<string, Kind>>();

  /** Finds the line of a name; it moves to the end of its map with every line, so that the first one is the oldest. */
  function findKind(message: string, fields: object, name: string, now: number): Kind {
    const key = `${message} ${describeCause(fields)}`;
    const names = namesByKind.get(key) ?? new Map<string, Kind>();
    namesByKind.set(key, names);
    for (const [oldest, { quiet_until }] of names) {
      if (names.size < max_names || quiet_until > now) break;
      if (oldest !== '') names.delete(oldest);
    }
    const own = names.has(name) || names.size < max_names ? name : '';
    const kind = names.get(own) ?? { quiet_until: 0, count: 0 };
    if (now >= kind.quiet_until) names.delete(own);
    names.set(own, kind);
    return kind;
  }

  return (message, fields, name = '') => {
    const now = readTime();
    const kind = findKind(message, fields, name.slice(0, max_name_length), now);
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
