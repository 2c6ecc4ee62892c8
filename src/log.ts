import { type Logger, pino } from 'pino';

/** Writes one JSON line per event to standard error, with the usual members for secrets redacted. */
export function createLog(level: string): Logger {
  return pino(
    { level, base: null, redact: ['*.password', '*.key', '*.secret', '*.uri'] },
    pino.destination({ fd: 2, sync: true }),
  );
}
