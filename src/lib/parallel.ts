/**
 * Calls `work` for every item, `max_concurrent` at a time. After a failure nothing more begins. @throws the first failure,
 * when what has begun has ended
 */
export async function runInParallel<T>(
  items: Iterable<T>,
  max_concurrent: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const waiting = items[Symbol.iterator]();
  const errors: unknown[] = [];
  async function run(): Promise<void> {
    while (errors.length === 0) {
      const { done, value } = waiting.next();
      if (done) return;
      await work(value).catch((error: unknown) => errors.push(error));
    }
  }
  await Promise.all(Array.from({ length: max_concurrent }, run));
  if (errors.length > 0) throw errors[0];
}
