import { findSharedFilter, isCovering } from '../protocol/topics.js';
import type { AddressedMessage, ChosenMembers } from '../store/messages.js';
import type { StoredSession, StoredSubscription, SubscriptionOptions } from '../store/sessions.js';
import { createFilterTree, type FilterMatch, type FilterTree, mergeMatch } from './filter-tree.js';
import type { Peers } from './peers.js';
import { canReceive } from './permissions.js';
import type { Session } from './session.js';

/** Options of subscriptions by their filters. */
type Subscriptions = Iterable<readonly [name: string, options: SubscriptionOptions]>;

/**
 * Finds what the subscriptions of a session say about a topic. @returns undefined if none matches
 * @param shared only shared ones count, and are added to this match of the others
 */
export function findMatch(
  subscriptions: Subscriptions,
  topic: string,
  shared?: { before: FilterMatch | undefined },
): FilterMatch | undefined {
  const levels = topic.split('/');
  let match = shared?.before;
  for (const [name, options] of subscriptions) {
    const sharedFilter = findSharedFilter(name);
    if (shared !== undefined && sharedFilter === undefined) continue;
    if (isCovering((sharedFilter ?? name).split('/'), levels)) match = mergeMatch(match, options);
  }
  return match;
}

/** The shared subscriptions of an account. */
export type SharedGroups = ReturnType<typeof createSharedGroups>;

/**
 * Creates the shared subscriptions of an account: one client of each group gets a message (reference/mqtt.md#mqtt-5).
 * @param canTake whether a client that is connected may have a topic; undefined if it is not connected
 */
function createSharedGroups(canTake: (client_id: string, topic: string) => boolean | undefined) {
  const names = createFilterTree<string>();
  /** Members of each group, least recently chosen first. */
  const members = new Map<string, Set<string>>();

  return {
    add(name: string, client_id: string): void {
      const group = members.get(name) ?? new Set();
      members.set(name, group.add(client_id));
      names.add(findSharedFilter(name) ?? name, name, { qos: 0 });
    },
    remove(name: string, client_id: string): void {
      const group = members.get(name);
      if (group === undefined || !group.delete(client_id) || group.size > 0) return;
      members.delete(name);
      names.remove(findSharedFilter(name) ?? name, name);
    },
    /** Chooses a client of each group that has the topic: connected ones first, in turn. @param asked groups; default: all */
    choose(topic: string, asked?: Iterable<string>): ChosenMembers {
      if (members.size === 0) return {};
      const chosen = new Map<string, string>();
      for (const name of asked ?? names.match(topic).keys()) {
        const group = members.get(name) ?? new Set<string>();
        const findMember = (state: true | undefined) => [...group].find((id) => canTake(id, topic) === state);
        const member = findMember(true) ?? findMember(undefined);
        if (member === undefined) continue;
        group.delete(member);
        group.add(member);
        chosen.set(name, member);
      }
      return chosen.size === 0 ? {} : { members: [...chosen.values()], shares: [...chosen.keys()] };
    },
  };
}

/** Finds the subscribers that get a message: those with a matching filter, and members of shared subscriptions. */
export function matchMessage<Subscriber>(
  filters: FilterTree<Subscriber>,
  { topic, sender = '', members = [], is_redelivered }: AddressedMessage,
  clients: ReadonlyMap<string, Subscriber>,
  subscriptionsOf: (member: Subscriber) => Subscriptions,
): ReadonlyMap<Subscriber, FilterMatch> {
  const found = new Map(is_redelivered ? [] : filters.match(topic, (subscriber) => subscriber === clients.get(sender)));
  for (const client_id of members) {
    const member = clients.get(client_id);
    const match = member && findMatch(subscriptionsOf(member), topic, { before: found.get(member) });
    if (member !== undefined && match !== undefined) found.set(member, match);
  }
  return found;
}

/** A session with its state, and its connections to this instance. */
interface Subscriber {
  state: StoredSession;
  live: ReadonlySet<Pick<Session, 'permissions'>>;
}

/** Creates the subscriptions of the sessions in `records` that do not get a message from this process alone. */
export function createSessionFilters<Entry extends Subscriber>(
  records: ReadonlyMap<string, Entry>,
  peers: Pick<Peers, 'isElsewhere'>,
) {
  const filters = createFilterTree<Entry>();
  const shared = createSharedGroups((client_id, topic) => {
    const { live, state } = records.get(client_id) ?? {};
    if (live !== undefined && live.size > 0) return [...live].some(({ permissions }) => canReceive(permissions, topic));
    // the other instance hands it over if the client may not have it
    return peers.isElsewhere(state?.instance ?? null) ? true : undefined;
  });

  return {
    add(record: Entry): void {
      for (const { topic, ...options } of record.state.subscriptions) {
        if (findSharedFilter(topic) === undefined) filters.add(topic, record, options);
        else shared.add(topic, record.state.client_id);
      }
    },
    remove(record: Entry): void {
      for (const { topic } of record.state.subscriptions) {
        if (findSharedFilter(topic) === undefined) filters.remove(topic, record);
        else shared.remove(topic, record.state.client_id);
      }
    },
    match: (message: AddressedMessage) =>
      matchMessage(filters, message, records, ({ state }) =>
        state.subscriptions.map(({ topic, ...options }) => [topic, options] as const),
      ),
    shared,
  };
}

/** Reports whether one of the subscriptions is shared. */
export function isMember(subscriptions: readonly StoredSubscription[]): boolean {
  return subscriptions.some(({ topic }) => findSharedFilter(topic) !== undefined);
}

/** Lists the subscriptions of a connection as they are stored. */
export function listSubscriptions({ subscriptions }: Pick<Session, 'subscriptions'>): StoredSubscription[] {
  return [...subscriptions].map(([topic, options]) => ({ topic, ...options }));
}
