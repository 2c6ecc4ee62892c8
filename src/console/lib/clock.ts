import { useCallback, useSyncExternalStore } from 'react';

const tick_ms = 1000;
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** Calls `listener` every second; not while the tab is hidden. @returns a function that ends the calls */
function listen(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    if (!document.hidden) for (const call of listeners) call();
  }, tick_ms);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** Returns the present time in epoch seconds, and renders again when `step_s` have passed. */
export function useNow(step_s: number): number {
  return useSyncExternalStore(
    listen,
    useCallback(() => Math.floor(Date.now() / 1000 / step_s) * step_s, [step_s]),
  );
}
