import { formatPosition } from '../schema/keyset.js';

/** Continues a list after an object (reference/lists.md#continuation). */
export interface Continuation {
  /** Query parameters of the order in which the list can be continued. */
  order: Readonly<Record<string, string>>;
  /** Value of `after` before the first object; absent: none. */
  first?: string;
  /** Returns the value of `after` for an object as exported; undefined if it does not show what is needed. */
  formatAfter(object: Readonly<Record<string, unknown>>): string | undefined;
  /** Fields that every object must show. */
  fields: readonly string[];
}

const byIdentifier: Continuation = {
  order: {},
  first: '0',
  fields: ['id_developer'],
  formatAfter: ({ id_developer }) => toText(id_developer),
};

/** Streams by device, time and number, which their identifier ends with. */
const byTime: Continuation = {
  order: {},
  first: '0',
  fields: ['device', 'at', 'id_developer'],
  formatAfter({ device, at, id_developer }) {
    const time = typeof at === 'string' && at !== '' ? Number(at) : at;
    const [, number] = /^[0-9a-f]{48}([0-9a-f]{16})@/.exec(toText(id_developer) ?? '') ?? [];
    if (typeof device !== 'string' || typeof time !== 'number' || number === undefined) return undefined;
    return formatPosition([device, time, number]);
  },
};

/** Events oldest first. */
const byEventId: Continuation = { order: { order: '1' }, fields: ['id'], formatAfter: ({ id }) => toText(id) };

/** Continuations of lists, by the last segment of their paths. */
export const continuations: ReadonlyMap<string, Continuation> = new Map([
  ...['projects', 'services', 'groups', 'assets', 'devices', 'models'].map((list) => [list, byIdentifier] as const),
  ['streams', byTime],
  ['events', byEventId],
]);

function toText(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
