/** A line of the log of the service. */
export interface LogEntry {
  /** Epoch milliseconds. */
  time: number;
  msg: string;
  /** Class and code of the error. */
  cause: string;
  stack: string;
}

interface Line {
  time: number;
  msg: string;
  err?: { type: string; code?: unknown; stack?: string };
}

/** The service counts from a moment shortly before it writes the time. */
const min_distance_ms = 950;

/** Parses standard error of an instance. Lines that are no entry of the log are entries with the message itself. */
export function parseLog(text: string): LogEntry[] {
  return text
    .split('\n')
    .filter(Boolean)
    .map((line) => {
      if (!line.startsWith('{')) return { time: 0, msg: line, cause: 'not JSON', stack: '' };
      const { time, msg, err } = JSON.parse(line) as Line;
      return {
        time,
        msg,
        cause: err === undefined ? '' : `${err.type} ${err.code ?? ''}`.trim(),
        stack: err?.stack ?? '',
      };
    });
}

/** @returns a description of every line that follows one of the same message and cause within a second */
export function findRepeatedLines(entries: readonly LogEntry[]): string[] {
  const last = new Map<string, number>();
  return entries.flatMap(({ time, msg, cause }) => {
    const key = `${msg} (${cause})`;
    const distance_ms = time - (last.get(key) ?? Number.NEGATIVE_INFINITY);
    last.set(key, time);
    return distance_ms < min_distance_ms ? [`${key} again after ${distance_ms} ms`] : [];
  });
}

/** Counts the lines of each message and cause. */
export function countLines(entries: readonly LogEntry[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { msg, cause } of entries) {
    const key = cause === '' ? msg : `${msg} (${cause})`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}
