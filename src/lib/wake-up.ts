/** Wakes one loop that waits for work. */
export type WakeUp = ReturnType<typeof createWakeUp>;

/** Creates the wake-up of a loop. @param signal ends every wait */
export function createWakeUp(signal?: AbortSignal) {
  let isDue = false;
  let endWait: (() => void) | undefined;
  const wake = () => {
    isDue = true;
    endWait?.();
  };
  signal?.addEventListener('abort', wake, { once: true });
  return {
    /** Ends the wait; without one, the next wait ends at once. */
    wake,
    /** Waits for `wake`, or until the signal aborts. */
    async wait(): Promise<void> {
      if (!isDue) await new Promise<void>((resolve) => (endWait = resolve));
      endWait = undefined;
      isDue = signal?.aborted === true;
    },
  };
}
