import { awaitLater } from './promises.js';

/** Keys that work needs for itself, and keys that it shares with other work. */
export interface LockKeys {
  exclusive: readonly string[];
  shared: readonly string[];
}

/**
 * Runs work at once, except that work with a common key waits for all earlier calls that need the key; sharing calls do not
 * wait for each other. Keys are granted in the order of the calls, so that nothing deadlocks. @throws what `work` throws
 */
export type KeyedMutex = <Result>(keys: string | LockKeys, work: () => Promise<Result>) => Promise<Result>;

/** The last work on a key: some exclusive work, and what shares the key after it. */
interface KeyTail {
  exclusive?: Promise<unknown>;
  shared: Set<Promise<unknown>>;
}

/** Creates a mutex; memory is held only for keys in use. */
export function createKeyedMutex(): KeyedMutex {
  const tails = new Map<string, KeyTail>();

  function enqueue(key: string, settled: Promise<unknown>, isShared: boolean): void {
    if (!isShared) tails.set(key, { exclusive: settled, shared: new Set() });
    else {
      const tail = tails.get(key) ?? { shared: new Set() };
      tail.shared.add(settled);
      tails.set(key, tail);
    }
  }

  function dequeue(key: string, settled: Promise<unknown>): void {
    const tail = tails.get(key);
    if (tail === undefined) return;
    tail.shared.delete(settled);
    if (tail.exclusive === settled) delete tail.exclusive;
    if (tail.exclusive === undefined && tail.shared.size === 0) tails.delete(key);
  }

  return (keys, work) => {
    const exclusive = new Set(typeof keys === 'string' ? [keys] : keys.exclusive);
    const shared = new Set(typeof keys === 'string' ? [] : keys.shared.filter((key) => !exclusive.has(key)));
    const earlier = new Set<Promise<unknown> | undefined>();
    for (const key of [...exclusive, ...shared]) earlier.add(tails.get(key)?.exclusive);
    for (const key of exclusive) for (const settled of tails.get(key)?.shared ?? []) earlier.add(settled);
    earlier.delete(undefined);
    const result = awaitLater(earlier.size === 0 ? work() : Promise.all(earlier).then(work));
    const settled: Promise<void> = awaitLater(result.then(release, release));
    function release(): void {
      for (const key of [...exclusive, ...shared]) dequeue(key, settled);
    }
    for (const key of exclusive) enqueue(key, settled, false);
    for (const key of shared) enqueue(key, settled, true);
    return result;
  };
}
