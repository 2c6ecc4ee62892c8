import { randomUUID } from 'node:crypto';

/** Creates a random id in one piece: V8 keeps what `randomUUID` returns as a list of strings. */
export function createRandomId(): string {
  return Buffer.from(randomUUID()).toString('latin1');
}

/** Returns the `_id` of what belongs to an account or a session, neither of whose names has a space. */
export function joinKey(owner: string, name: string | number): string {
  return `${owner} ${name}`;
}

/** Splits an `_id` into the account or session and the name, a topic for example. */
export function splitKey(_id: string): [owner: string, name: string] {
  const at = _id.indexOf(' ');
  return [_id.slice(0, at), _id.slice(at + 1)];
}

/** Selects what belongs to an account or a session. */
export function withPrefix(owner: string): { $gte: string; $lt: string } {
  return { $gte: `${owner} `, $lt: `${owner}!` };
}
