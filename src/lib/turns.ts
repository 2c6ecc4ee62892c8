import { setImmediate as nextTurn } from 'node:timers/promises';

const turn_limit_ms = 10;

/** Creates a function for each round of a long loop: it lets others run when 10 ms have passed since it last did. */
export function createTurns(): () => Promise<void> {
  let started_at = performance.now();
  return async () => {
    if (performance.now() - started_at <= turn_limit_ms) return;
    await nextTurn();
    started_at = performance.now();
  };
}
