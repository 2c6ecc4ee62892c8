/** Wakes one loop that waits for work. */
export interface Bell {
  /** Ends the wait; without one, the next wait ends at once. */
  ring(): void;
  /** Waits until the bell rings or the signal aborts. */
  wait(): Promise<void>;
}

/** Creates the bell of a loop that ends with `signal`. */
export function createBell(signal: AbortSignal): Bell {
  let hasRung = false;
  let wake: (() => void) | undefined;
  const ring = () => {
    hasRung = true;
    wake?.();
  };
  signal.addEventListener('abort', ring, { once: true });
  return {
    ring,
    async wait() {
      if (!hasRung) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      wake = undefined;
      hasRung = signal.aborted;
    },
  };
}
