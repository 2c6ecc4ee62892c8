/** Who makes a change; the service itself has no user. */
interface Author {
  user?: string | undefined;
  request_id?: string | undefined;
}

/** Who makes a change, and when. */
export interface TimedAuthor extends Author {
  /** Epoch seconds. */
  now: number;
}

/** An event that a change names by itself (reference/events.md#types). */
export interface NamedEvent extends Author {
  type: string;
  data: object;
}

/** Author of the last change of a document, or the kind of a change that the service itself made. */
export interface LastChange {
  user?: string;
  request_id?: string;
  /** A change of a device's status (reference/events.md#status-changes). */
  status?: { from: string; to: string; since: number };
  /** Names of the fields that changed, where the log of changes does not show them. */
  changed?: readonly string[];
  /** The service disabled a webhook. */
  disabled?: true;
  /** The events of the change, in their order. */
  events?: readonly NamedEvent[];
}

/**
 * Writes the stored form of `last_change`. It is text because the database's log of changes then shows it whole; of an
 * object it would show the members that differ.
 */
export function formatLastChange({ user, request_id, status, changed, disabled, events }: LastChange): string {
  return JSON.stringify({ user, request_id, status, changed, disabled, events });
}

/** Builds the stored form of a change of the status. @param since expression for epoch seconds */
export function buildStatusChange(from: string, to: string, since: string | object): object {
  return { $concat: [`{"status":{"from":"${from}","to":"${to}","since":`, { $toString: since }, '}}'] };
}

/** Parses the stored form. */
export function parseLastChange(text: string): LastChange {
  return JSON.parse(text) as LastChange;
}
