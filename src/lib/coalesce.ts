/** Merges concurrent calls: those made during a run share the next run, so that each sees the state at its call. */
export function coalesce(work: () => Promise<void>): () => Promise<void> {
  let current: Promise<void> | undefined;
  let next: Promise<void> | undefined;

  function run(): Promise<void> {
    current = work().finally(() => {
      current = undefined;
    });
    return current;
  }

  return () => {
    if (current === undefined) return run();
    next ??= current
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        return run();
      });
    return next;
  };
}
