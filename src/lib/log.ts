import { type DestinationStream, type Logger, pino } from 'pino';
import { AppError } from '../errors.js';
import { createRateLimitedLog } from './rate-limited-log.js';

/** Drops every line: for tools, which print their own, and for processes of which another one reports. */
export const silentLog = { info() {}, warn() {}, error() {} };

/**
 * Creates the log: one JSON line per event, on standard error. Secrets are redacted by field name, and errors are
 * serialized without the data they carry. An outage of the database, which everything meets at once, is one line a minute.
 */
export function createLog(
  level: string,
  destination: DestinationStream = pino.destination({ fd: 2, sync: true }),
): Logger {
  const log = pino(
    {
      level,
      base: null,
      redact: ['*.password', '*.key', '*.secret', '*.uri'],
      formatters: { log: serializeErrors },
      // pino's own serializer copies every property of an error
      serializers: { err: (serialized: unknown) => serialized },
      hooks: {
        logMethod(args, method, level) {
          const [fields, message] = args as unknown as [Fields, string];
          const outage = limitedLevels.includes(level) ? findOutage(fields.err) : undefined;
          if (outage === undefined) return method.apply(this, args);
          const { err: _, ...rest } = fields;
          reportOutage('the database does not answer', { ...rest, reason: redactMessage(outage), during: message });
        },
      },
    },
    destination,
  );
  const reportOutage = createRateLimitedLog(log, 'error');
  return log;
}

/** warn and error, as pino numbers them */
const limitedLevels: readonly number[] = [40, 50];
/** Errors of the connection, or of waiting for one. */
const outageNames = /^Mongo(?:ose)?(?:Network|(?:Network|WaitQueue)Timeout|ServerSelection|PoolCleared)Error$/;

/** Finds the failed connection that an error is, or that caused it. */
export function findOutage(error: unknown): Error | undefined {
  const { cause } = Object(error) as { cause?: unknown };
  return [error, cause].filter(isError).find(({ name }) => outageNames.test(name));
}

type Fields = Record<string, unknown>;

function serializeErrors(fields: Fields): Fields {
  return Object.fromEntries(
    Object.entries(fields).map(([key, value]) => [key, isError(value) ? serializeError(value) : value]),
  );
}

/** Duck-typed: errors of other realms are no instances of this one's Error. */
function isError(value: unknown): value is Error {
  if (typeof value !== 'object' || value === null) return false;
  const { message, stack } = value as Partial<Error>;
  return typeof message === 'string' && typeof stack === 'string';
}

const max_depth = 4;
const max_nested_errors = 10;
/** Properties of Node and the driver that say what failed, without data. */
const shownProperties = ['code', 'codeName', 'errno', 'syscall', 'address', 'port'] as const;

/** An allow-list: an error of the driver holds the documents of the failed batch in `result`, `writeErrors` and `op`. */
function serializeError(error: Error, depth = 0): Fields {
  const serialized: Fields = { type: error.constructor?.name ?? error.name, message: redactMessage(error) };
  for (const property of shownProperties) {
    const value = (error as unknown as Fields)[property];
    if (typeof value === 'string' || typeof value === 'number') serialized[property] = value;
  }
  if (error instanceof AppError) Object.assign(serialized, { failure: error.failure, details: error.details });
  const { cause, errors, writeErrors } = error as { cause?: unknown; errors?: unknown; writeErrors?: unknown };
  if (Array.isArray(writeErrors)) serialized.write_errors = writeErrors.length;
  if (isError(cause) && depth < max_depth) serialized.cause = serializeError(cause, depth + 1);
  if (Array.isArray(errors) && depth < max_depth) {
    serialized.errors = errors
      .filter(isError)
      .slice(0, max_nested_errors)
      .map((nested) => serializeError(nested, depth + 1));
  }
  serialized.stack = readFrames(error);
  return serialized;
}

/** Errors whose messages quote the value that they are about. */
const quotesValues = /^(?:Mongo|BSON|Cast|Validat|Syntax)/;

/** Cuts the documents out of a message: the server prints them from a `{` on, as in `dup key: { name: "…" }`. */
function redactMessage({ name, message }: Error): string {
  const withoutDocument = message.replace(/\{[\s\S]*$/, '{…}');
  // a quote within a word is an apostrophe
  return quotesValues.test(name)
    ? withoutDocument.replaceAll(/(?<!\w)(["'`])[\s\S]*?(?:\1|$)/g, '$1…$1')
    : withoutDocument;
}

/** The stack without its first lines, which repeat the message. */
function readFrames({ stack = '', message }: Error): string {
  const start = stack.indexOf(message);
  const rest = start < 0 ? stack : stack.slice(start + message.length);
  const firstFrame = rest.search(/^ {4}at /m);
  return firstFrame < 0 ? '' : rest.slice(firstFrame).trim();
}
