interface Descriptor {
  code: number;
  status: number;
  message: string;
  description: string;
  /** Content of `details`: a message per wrong field, the fault of the key, the stored version, or one message. Empty if absent. */
  details?: 'faults' | 'key' | 'version' | 'message';
}

/**
 * The error table (reference/errors.md#codes): responses and documentation are made from it. `status` is the HTTP
 * status; this file imports nothing from Express.
 */
export const failures = {
  badJson: {
    code: 4001,
    status: 400,
    message: 'Json bad formed',
    description: 'the body of a create is not a JSON object',
  },
  noBody: {
    code: 4001,
    status: 400,
    message: 'nonexistent file',
    description: 'the body of an update is not a JSON object',
  },
  invalid: {
    code: 4003,
    status: 400,
    message: 'validation error',
    description: 'fields of the body break a rule',
    details: 'faults',
  },
  badParameter: {
    code: 4004,
    status: 400,
    message: 'format parameter invalid',
    description: 'a path or query parameter is malformed, unknown, repeated or empty',
    details: 'faults',
  },
  conflict: {
    code: 4005,
    status: 400,
    message: 'concurrency error',
    description: 'another version is stored, or another number of objects matches',
    details: 'version',
  },
  unauthorized: {
    code: 4011,
    status: 401,
    message: 'unauthorized',
    description:
      'no API key, or one that is unknown, revoked or expired; a token that is not valid; the storage to list is not linked',
    details: 'key',
  },
  forbidden: {
    code: 4031,
    status: 403,
    message: 'forbidden',
    description: 'the scope or the limit of the key does not allow the operation, or the claim of the token no access',
  },
  notFound: { code: 4041, status: 404, message: 'not found', description: 'there is no such resource in the account' },
  methodNotAllowed: {
    code: 4051,
    status: 405,
    message: 'method not allowed',
    description: 'the path has no such method; `Allow` lists its methods',
  },
  requestTimeout: {
    code: 4081,
    status: 408,
    message: 'request timeout',
    description: 'the request took too long to arrive',
  },
  tooLarge: {
    code: 4131,
    status: 413,
    message: 'body too large',
    description: 'the body is over 1 MiB (device configs: 16 MiB)',
  },
  tooMany: {
    code: 4291,
    status: 429,
    message: 'too many requests',
    description: 'the key is over RATE_LIMIT_PER_MINUTE',
  },
  headersTooLarge: {
    code: 4311,
    status: 431,
    message: 'headers too large',
    description: 'path and headers are over 16 KiB',
  },
  database: {
    code: 5031,
    status: 503,
    message: 'BD error',
    description:
      'the database failed or did not answer in time; no keys of OIDC_ISSUER are known; stored streams are being read for a new path',
  },
  exception: {
    code: 5032,
    status: 503,
    message: 'exception',
    description: 'a linked storage failed, or anything unforeseen; the log has the request id',
    details: 'message',
  },
  overloaded: {
    code: 5033,
    status: 503,
    message: 'overloaded',
    description: 'the service or the account has more in progress than it takes',
  },
} as const satisfies Record<string, Descriptor>;

export type Failure = keyof typeof failures;

/** Messages by wrong field or parameter. Nested fields are named by their path. */
export type FieldErrors = Record<string, string>;

/** A failure to report to the client. `details` is sent as it is: never put anything internal into it. */
export class AppError extends Error {
  constructor(
    readonly failure: Failure,
    readonly details: Readonly<Record<string, unknown>> = {},
    options: ErrorOptions & { logged?: Readonly<Record<string, unknown>> } = {},
  ) {
    super(failures[failure].message, options);
    this.logged = options.logged;
  }

  /** Fields of the log line, not sent to the client. */
  readonly logged: Readonly<Record<string, unknown>> | undefined;
}

/** Reports all faults together. @throws AppError `failure` unless there are none */
export function throwIfAny(failure: Failure, faults: FieldErrors): void {
  if (Object.keys(faults).length > 0) throw new AppError(failure, faults);
}

/** An empty record without prototype: clients choose the keys. */
export function createFieldErrors(): FieldErrors {
  return Object.create(null) as FieldErrors;
}

/** An error of configuration or environment that stops the start; operators see the message only. */
export class StartError extends Error {
  override name = 'StartError';
}
