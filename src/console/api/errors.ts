/** A request that failed: the status body of the interface, or no answer at all (`code` 0). */
export class RequestError extends Error {
  override name = 'RequestError';

  constructor(
    readonly status: number,
    readonly code: number,
    message: string,
    readonly details: Readonly<Record<string, unknown>> = {},
    /** Seconds that the service asks to wait. */
    readonly retry_after_s?: number,
    /** Names the request in events. */
    readonly request_id?: string,
  ) {
    super(message);
  }

  /** The message of each field that is wrong; empty unless the code is 4003 or 4004. */
  get fieldMessages(): Record<string, string> {
    if (this.code !== 4003 && this.code !== 4004) return {};
    return Object.fromEntries(Object.entries(this.details).map(([field, reason]) => [field, String(reason)]));
  }
}

/** Reports whether the key is missing, revoked or expired; a storage that is not linked is a 401 without details. */
export function isKeyRejected(error: unknown): boolean {
  return error instanceof RequestError && error.code === 4011 && 'service.apikey' in error.details;
}

/** Reports whether the token is valid, but its user has no access: every key may read who it is. */
export function isWithoutAccess(error: unknown): boolean {
  return error instanceof RequestError && error.code === 4031;
}

/** Reports whether the same request can succeed later: no answer, the database is away, or too much at once. */
export function isTemporary(error: unknown): boolean {
  return error instanceof RequestError && [0, 4291, 5031, 5033].includes(error.code);
}

const explanations: Readonly<Record<number, string>> = {
  0: 'The service does not answer.',
  4005: 'Somebody else has changed it meanwhile.',
  4031: 'The key does not allow this.',
  4041: 'It does not exist (any more).',
  4131: 'It is too large.',
  4291: 'Too many requests with this key.',
  5031: 'The database does not answer.',
  5032: 'Something unforeseen happened.',
  5033: 'The service is overloaded.',
};

/** Describes a failure in words for people, with the details that belong to no field of a form. */
export function describeError(error: unknown): string {
  if (!(error instanceof RequestError)) return error instanceof Error ? error.message : String(error);
  const explanation = explanations[error.code] ?? error.message;
  const details = Object.entries(error.details).map(([field, reason]) => `${field}: ${formatReason(reason)}`);
  return [explanation, ...details].join(' ');
}

function formatReason(reason: unknown): string {
  return typeof reason === 'object' ? JSON.stringify(reason) : String(reason);
}
