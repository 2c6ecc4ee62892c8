/** Waits for the turn of the event loop in which the caller may do its next piece of work. */
export type YieldTurn = () => Promise<void>;

/** Creates a queue that runs one waiting piece of work per turn of the event loop, so that others run in between. */
export function createYieldQueue(): YieldTurn {
  const waiting: (() => void)[] = [];
  function runNext(): void {
    waiting.shift()?.();
    if (waiting.length > 0) setImmediate(runNext);
  }
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(runNext);
    });
}
