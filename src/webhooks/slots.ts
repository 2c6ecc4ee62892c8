/** Runs work when one of a number of slots is free, in order of arrival. */
export type WithSlot = <Result>(work: () => Promise<Result>) => Promise<Result>;

/** Limits work that is done at the same time. */
export function createSlots(count: number): WithSlot {
  const waiting: (() => void)[] = [];
  let free = count;
  return async (work) => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      // the slot passes to the next in line
      const next = waiting.shift();
      if (next === undefined) free++;
      else next();
    }
  };
}
