/** Runs work on a key after all earlier work on it. */
export type KeyLock = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>;

/** Creates a lock without keys. */
export function createKeyLock(): KeyLock {
  const last = new Map<string, Promise<unknown>>();
  return (key, work) => {
    const result = (last.get(key) ?? Promise.resolve()).then(work);
    const settled = result.then(
      () => undefined,
      () => undefined,
    );
    last.set(key, settled);
    void settled.then(() => {
      if (last.get(key) === settled) last.delete(key);
    });
    return result;
  };
}
