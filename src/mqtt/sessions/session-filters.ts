import { findSharedFilter } from '../protocol/topics.js';
import type { StoredSession, StoredSubscription } from '../store/sessions.js';
import { createFilterTree, type FilterMatch, mergeMatch } from './filter-tree.js';
import type { Session } from './session.js';
import { createSharedGroups, findSharedMatch, type SharedGroups } from './shared-groups.js';

/** A message, whom it comes from, and the members of shared subscriptions that get it. */
export interface AddressedMessage {
  topic: string;
  /** The client id of the publisher. */
  sender?: string | undefined;
  members?: readonly string[];
  /** Only the members get it: a session has ended that had it before. */
  is_redelivered?: true;
}

/** A session with its state, and its connections to this instance. */
interface Subscriber {
  state: StoredSession;
  live: ReadonlySet<unknown>;
}

/** The subscriptions of the sessions of an account that do not get a message from this process alone. */
export interface SessionFilters<Entry extends Subscriber> {
  add(record: Entry): void;
  remove(record: Entry): void;
  /** Finds the sessions that get a message: those with a matching filter, and members of shared subscriptions. */
  match(message: AddressedMessage): ReadonlyMap<Entry, FilterMatch>;
  readonly shared: SharedGroups;
}

/** Creates the subscriptions of the sessions in `records`. @param isElsewhere another instance is alive */
export function createSessionFilters<Entry extends Subscriber>(
  records: ReadonlyMap<string, Entry>,
  isElsewhere: (instance: string) => boolean,
): SessionFilters<Entry> {
  const filters = createFilterTree<Entry>();
  const shared = createSharedGroups((client_id) => {
    const { live, state } = records.get(client_id) ?? {};
    return (live?.size ?? 0) > 0 || (state?.instance != null && isElsewhere(state.instance));
  });

  return {
    add(record) {
      for (const { topic, ...options } of record.state.subscriptions) {
        if (findSharedFilter(topic) === undefined) filters.add(topic, record, options);
        else shared.add(topic, record.state.client_id);
      }
    },
    remove(record) {
      for (const { topic } of record.state.subscriptions) {
        if (findSharedFilter(topic) === undefined) filters.remove(topic, record);
        else shared.remove(topic, record.state.client_id);
      }
    },
    match({ topic, sender, members = [], is_redelivered }) {
      const found = new Map(is_redelivered ? [] : filters.match(topic, ({ state }) => state.client_id === sender));
      for (const client_id of members) {
        const record = records.get(client_id);
        const named = record?.state.subscriptions.map(({ topic: name, ...options }) => [name, options] as const);
        const match = named && findSharedMatch(named, topic);
        if (record !== undefined && match !== undefined) found.set(record, mergeMatch(found.get(record), match));
      }
      return found;
    },
    shared,
  };
}

/** Reports whether one of the subscriptions is shared. */
export function isMember(subscriptions: readonly StoredSubscription[]): boolean {
  return subscriptions.some(({ topic }) => findSharedFilter(topic) !== undefined);
}

/** Lists the subscriptions of a connection as they are stored. */
export function listSubscriptions({ subscriptions }: Pick<Session, 'subscriptions'>): StoredSubscription[] {
  return [...subscriptions].map(([topic, { levels: _levels, ...options }]) => ({ topic, ...options }));
}
