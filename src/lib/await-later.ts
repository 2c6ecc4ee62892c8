/**
 * Returns a promise that is stored and awaited later. Without a handler from its start, a rejection in between ends the
 * process. `tests/architecture.test.ts` finds promises that are stored without it.
 */
export function awaitLater<Result>(promise: Promise<Result>): Promise<Result> {
  promise.catch(() => undefined);
  return promise;
}
