import { awaitLater } from './promises.js';

/** Merges concurrent calls: those made during a run share the next run, so that each sees the state at its call. */
export function coalesce(work: () => Promise<void>): () => Promise<void> {
  let current: Promise<void> | undefined;
  let next: Promise<void> | undefined;

  function run(): Promise<void> {
    current = awaitLater(
      work().finally(() => {
        current = undefined;
      }),
    );
    return current;
  }

  return () => {
    if (current === undefined) return run();
    const runNext = () => {
      next = undefined;
      return run();
    };
    next ??= awaitLater(current.then(runNext, runNext));
    return next;
  };
}
