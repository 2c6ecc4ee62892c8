import type { TopicLevels } from '../protocol/topics.js';
import type { SubscriptionOptions } from '../store/sessions.js';
import type { Qos } from './session.js';

/** The matching filters of a subscriber as one: their highest QoS, and the identifiers of all. */
export interface FilterMatch {
  qos: Qos;
  ids?: readonly number[];
  retain_as_published?: true;
}

interface TreeNode<Subscriber> {
  children: Map<string, TreeNode<Subscriber>>;
  subscribers: Map<Subscriber, SubscriptionOptions>;
}

/** Adds a matching filter to those that a message was compared with before. */
export function mergeMatch(
  before: FilterMatch | undefined,
  { qos, id, retain_as_published }: SubscriptionOptions,
): FilterMatch {
  const ids = id === undefined ? before?.ids : [...(before?.ids ?? []), id];
  const keeps = retain_as_published ?? before?.retain_as_published;
  return {
    qos: before !== undefined && before.qos > qos ? before.qos : qos,
    ...(ids && { ids }),
    ...(keeps && { retain_as_published: keeps }),
  };
}

/** Topic filters of many subscribers, as a tree of their levels: a topic is compared with those on its way only. */
export type FilterTree<Subscriber> = ReturnType<typeof createFilterTree<Subscriber>>;

/** Creates an empty tree. */
export function createFilterTree<Subscriber>() {
  const createNode = (): TreeNode<Subscriber> => ({ children: new Map(), subscribers: new Map() });
  const root = createNode();

  function removeFrom(node: TreeNode<Subscriber>, levels: TopicLevels, depth: number, subscriber: Subscriber): void {
    const level = levels[depth];
    if (level === undefined) {
      node.subscribers.delete(subscriber);
      return;
    }
    const child = node.children.get(level);
    if (child === undefined) return;
    removeFrom(child, levels, depth + 1, subscriber);
    if (child.subscribers.size === 0 && child.children.size === 0) node.children.delete(level);
  }

  return {
    add(filter: string, subscriber: Subscriber, options: SubscriptionOptions): void {
      let node = root;
      for (const level of filter.split('/')) {
        const child = node.children.get(level) ?? createNode();
        node.children.set(level, child);
        node = child;
      }
      node.subscribers.set(subscriber, options);
    },
    remove: (filter: string, subscriber: Subscriber) => removeFrom(root, filter.split('/'), 0, subscriber),
    /** Finds the subscribers with a matching filter. @param isSender finds the publisher, for no local */
    match(
      topic: string,
      isSender: (subscriber: Subscriber) => boolean = () => false,
    ): ReadonlyMap<Subscriber, FilterMatch> {
      const found = new Map<Subscriber, FilterMatch>();
      if (root.children.size === 0) return found;
      const levels = topic.split('/');
      const collect = ({ subscribers }: TreeNode<Subscriber>) => {
        for (const [subscriber, options] of subscribers)
          if (options.no_local === undefined || !isSender(subscriber))
            found.set(subscriber, mergeMatch(found.get(subscriber), options));
      };
      const visit = (node: TreeNode<Subscriber>, depth: number): void => {
        const rest = node.children.get('#');
        if (rest !== undefined) collect(rest);
        const level = levels[depth];
        if (level === undefined) {
          collect(node);
          return;
        }
        const any = node.children.get('+');
        if (any !== undefined) visit(any, depth + 1);
        const child = node.children.get(level);
        if (child !== undefined) visit(child, depth + 1);
      };
      visit(root, 0);
      return found;
    },
  };
}
