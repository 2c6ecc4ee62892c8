/** Runs work, `max_concurrent` at a time. @throws the first error, when what has begun has ended */
export async function runLimited(max_concurrent: number, work: readonly (() => Promise<unknown>)[]): Promise<void> {
  const waiting = work.values();
  const errors: unknown[] = [];
  async function run(): Promise<void> {
    for (const start of waiting) {
      if (errors.length > 0) return;
      await start().catch((error: unknown) => errors.push(error));
    }
  }
  await Promise.all(Array.from({ length: Math.min(max_concurrent, work.length) }, run));
  if (errors.length > 0) throw errors[0];
}
