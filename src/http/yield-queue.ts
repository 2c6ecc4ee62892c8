/**
 * Keeps long pieces of work from following one another without a pause.
 * @returns a function to wait on before each piece: one goes on in each turn of the event loop
 */
export function createYieldQueue(): () => Promise<void> {
  const waiting: (() => void)[] = [];
  function next(): void {
    waiting.shift()?.();
    if (waiting.length > 0) setImmediate(next);
  }
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(next);
    });
}
