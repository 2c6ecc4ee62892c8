import { findSharedFilter, isCovering } from '../protocol/topics.js';
import type { SubscriptionOptions } from '../store/sessions.js';
import { createFilterTree, type FilterMatch, mergeMatch } from './filter-tree.js';

/** Finds what the shared subscriptions of a session say about a topic. @returns undefined if none matches */
export function findSharedMatch(
  subscriptions: Iterable<readonly [name: string, options: SubscriptionOptions]>,
  topic: string,
): FilterMatch | undefined {
  let match: FilterMatch | undefined;
  for (const [name, options] of subscriptions) {
    const filter = findSharedFilter(name);
    if (filter !== undefined && isCovering(filter.split('/'), topic.split('/'))) match = mergeMatch(match, options);
  }
  return match;
}

/** The shared subscriptions of an account: one client of each group gets a message (reference/mqtt.md#mqtt-5). */
export type SharedGroups = ReturnType<typeof createSharedGroups>;

/** Creates the groups of an account, on all instances. */
export function createSharedGroups(isConnected: (client_id: string) => boolean) {
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
    /** Chooses a client of each group that has the topic: connected ones first, in turn. */
    choose(topic: string): readonly string[] {
      if (members.size === 0) return [];
      return [...names.match(topic).keys()].flatMap((name) => {
        const group = members.get(name) ?? new Set<string>();
        const chosen = [...group].find(isConnected) ?? [...group][0];
        if (chosen === undefined) return [];
        group.delete(chosen);
        group.add(chosen);
        return [chosen];
      });
    },
  };
}
