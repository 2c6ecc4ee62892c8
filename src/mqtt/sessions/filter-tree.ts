import type { TopicLevels } from '../protocol/topics.js';
import type { Qos } from './session.js';

interface TreeNode<Subscriber> {
  children: Map<string, TreeNode<Subscriber>>;
  subscribers: Map<Subscriber, Qos>;
}

/** Topic filters of many subscribers, as a tree of their levels: a topic is compared with those on its way only. */
export interface FilterTree<Subscriber> {
  add(filter: string, subscriber: Subscriber, qos: Qos): void;
  remove(filter: string, subscriber: Subscriber): void;
  /** Finds the subscribers with a matching filter, and the highest QoS granted to each. */
  match(topic: string): ReadonlyMap<Subscriber, Qos>;
}

/** Creates an empty tree. */
export function createFilterTree<Subscriber>(): FilterTree<Subscriber> {
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
    add(filter, subscriber, qos) {
      let node = root;
      for (const level of filter.split('/')) {
        const child = node.children.get(level) ?? createNode();
        node.children.set(level, child);
        node = child;
      }
      node.subscribers.set(subscriber, qos);
    },
    remove: (filter, subscriber) => removeFrom(root, filter.split('/'), 0, subscriber),
    match(topic) {
      const found = new Map<Subscriber, Qos>();
      if (root.children.size === 0) return found;
      const levels = topic.split('/');
      const collect = ({ subscribers }: TreeNode<Subscriber>) => {
        for (const [subscriber, qos] of subscribers)
          if (qos >= (found.get(subscriber) ?? 0)) found.set(subscriber, qos);
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
