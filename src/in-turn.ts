/** Runs `work` when all earlier work of the same key has ended. @throws what `work` throws */
export type InTurn = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>;

/** Creates queues, one for each key in use. */
export function createTurns(): InTurn {
  const lastOf = new Map<string, Promise<unknown>>();
  return async (key, work) => {
    const previous = lastOf.get(key);
    const current = (previous ?? Promise.resolve()).then(work, work);
    lastOf.set(key, current);
    try {
      return await current;
    } finally {
      if (lastOf.get(key) === current) lastOf.delete(key);
    }
  };
}
