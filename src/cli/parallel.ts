/**
 * Calls `work` for every item, `concurrency` at a time. The first failure keeps the remaining items from starting, because
 * leaving a loop ends the iterator that all loops share. @throws the first failure
 */
export async function runInParallel<T>(
  items: Iterable<T>,
  concurrency: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = (function* () {
    yield* items;
  })();
  const consume = async () => {
    for (const item of queue) await work(item);
  };
  await Promise.all(Array.from({ length: concurrency }, consume));
}
