/** Wakes one loop that waits for work. */
export interface WakeUp {
  /** Ends the wait; without one, the next wait ends at once. */
  wake(): void;
  /** Waits for `wake`, or until the signal aborts. */
  wait(): Promise<void>;
}

/** Creates the wake-up of a loop that ends with `signal`. */
export function createWakeUp(signal: AbortSignal): WakeUp {
  let isDue = false;
  let endWait: (() => void) | undefined;
  const wake = () => {
    isDue = true;
    endWait?.();
  };
  signal.addEventListener('abort', wake, { once: true });
  return {
    wake,
    async wait() {
      if (!isDue) {
        await new Promise<void>((resolve) => {
          endWait = resolve;
        });
      }
      endWait = undefined;
      isDue = signal.aborted;
    },
  };
}
