/**
 * Runs work with a signal that aborts together with `outer`, or after a time. `AbortSignal.timeout` within `AbortSignal.any` may
 * be collected before it fires (https://github.com/nodejs/node/issues/57736); here the timer holds the signal.
 */
export async function runWithTimeLimit<Result>(
  limit_ms: number,
  outer: AbortSignal,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), limit_ms);
  try {
    return await work(AbortSignal.any([limit.signal, outer]));
  } finally {
    clearTimeout(timer);
  }
}
