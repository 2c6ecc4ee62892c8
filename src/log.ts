import { type Logger, pino } from 'pino';

/** One JSON line per event on standard error; whatever might be a secret is left out by name. */
export function createLog(level: string): Logger {
  return pino(
    { level, base: null, redact: ['*.password', '*.key', '*.secret', '*.uri'] },
    pino.destination({ fd: 2, sync: true }),
  );
}
