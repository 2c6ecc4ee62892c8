/** Keys that a piece of work needs: alone, or together with others that share them. */
export interface LockKeys {
  exclusive: readonly string[];
  shared: readonly string[];
}

/** The last work on a key: one alone, and after it those that share the key. */
interface Tail {
  exclusive: Promise<void> | undefined;
  shared: Set<Promise<void>>;
}

/** Runs work concurrently, except that work on a common key keeps the order of the calls. */
export type RunInOrder = <T>(keys: LockKeys, work: () => Promise<T>) => Promise<T>;

/**
 * Creates locks that are granted in the order of the calls, so that they cannot deadlock. Memory is held only for work
 * that is not finished.
 */
export function createOrderedLocks(): RunInOrder {
  const tails = new Map<string, Tail>();

  function tailOf(key: string): Tail {
    const tail = tails.get(key) ?? { exclusive: undefined, shared: new Set() };
    tails.set(key, tail);
    return tail;
  }

  function forget(key: string, done: Promise<void>): void {
    const tail = tails.get(key);
    if (tail === undefined) return;
    tail.shared.delete(done);
    if (tail.exclusive === done) tail.exclusive = undefined;
    if (tail.exclusive === undefined && tail.shared.size === 0) tails.delete(key);
  }

  return ({ exclusive, shared }, work) => {
    const before = new Set<Promise<void>>();
    const own = new Set(exclusive);
    const others = [...new Set(shared)].filter((key) => !own.has(key));
    for (const key of [...own, ...others]) {
      const tail = tails.get(key);
      if (tail?.exclusive !== undefined) before.add(tail.exclusive);
      if (own.has(key)) for (const sharing of tail?.shared ?? []) before.add(sharing);
    }
    const outcome = before.size === 0 ? work() : Promise.all(before).then(work);
    const done: Promise<void> = outcome
      .then(
        () => undefined,
        () => undefined,
      )
      .then(() => {
        for (const key of [...own, ...others]) forget(key, done);
      });
    for (const key of own) tails.set(key, { exclusive: done, shared: new Set() });
    for (const key of others) tailOf(key).shared.add(done);
    return outcome;
  };
}
