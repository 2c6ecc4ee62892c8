import { awaitLater } from './promises.js';

/** Work did not end in time. */
export class TimeLimitError extends Error {
  override readonly name = 'TimeLimitError';
}

/**
 * Runs work with a signal that aborts together with `outer`, or with a TimeLimitError after a time. `AbortSignal.timeout`
 * within `AbortSignal.any` may be collected before it fires (https://github.com/nodejs/node/issues/57736); here the timer
 * holds the signal.
 */
export async function runWithTimeLimit<Result>(
  limit_ms: number,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(new TimeLimitError(`not done within ${limit_ms} ms`)), limit_ms);
  try {
    return await work(outer === undefined ? limit.signal : AbortSignal.any([limit.signal, outer]));
  } finally {
    clearTimeout(timer);
  }
}

/** Runs work that may never end: the promise settles when the signal aborts, whatever becomes of the work. */
export function runUntilTimeLimit<Result>(
  limit_ms: number,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  return runWithTimeLimit(limit_ms, outer, async (signal) => {
    let leave: (() => void) | undefined;
    const aborted = awaitLater(
      new Promise<never>((_resolve, reject) => {
        leave = () => reject(signal.reason);
        signal.addEventListener('abort', leave, { once: true });
      }),
    );
    try {
      return await Promise.race([work(signal), aborted]);
    } finally {
      // Node keeps a signal in memory while it has a listener
      if (leave !== undefined) signal.removeEventListener('abort', leave);
    }
  });
}
