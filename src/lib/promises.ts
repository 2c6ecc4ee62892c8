/**
 * Gives a promise that is stored and awaited later a handler from its start: a rejection in between would end the process.
 * `tests/unit/promises.test.ts` finds promises without one.
 */
export function awaitLater<Value>(promise: Value): Value {
  Promise.resolve(promise).catch(() => undefined);
  return promise;
}

/** Creates a handler for rejections that takes expected errors for `value`, and throws all others. */
export function ignore<Value = undefined>(isExpected: (error: unknown) => boolean, value?: Value) {
  return (error: unknown): Value => {
    if (!isExpected(error)) throw error;
    return value as Value;
  };
}

/** A map, or a cache. */
interface Promises<Key, Result> {
  get(key: Key): Promise<Result> | undefined;
  set(key: Key, promise: Promise<Result>): unknown;
  delete(key: Key): boolean;
}

/** Returns the promise of a key, so that calls share it; starts it if there is none. A failure is forgotten. */
export function getOrStart<Key, Result>(
  promises: Promises<Key, Result>,
  key: Key,
  start: (key: Key) => Promise<Result>,
): Promise<Result> {
  const existing = promises.get(key);
  if (existing !== undefined) return existing;
  const promise = awaitLater(start(key));
  promises.set(key, promise);
  promise.catch(() => promises.get(key) === promise && promises.delete(key));
  return promise;
}
