const slice_length = 2_000;

/**
 * Sorts by merging sorted slices, with a `pause` after each slice, so that a long list does not hold up the event loop.
 * A `pause` that throws ends it.
 */
export async function sortInSlices<T>(
  items: readonly T[],
  compare: (a: T, b: T) => number,
  pause: () => Promise<void>,
): Promise<T[]> {
  let runs: T[][] = [];
  for (let from = 0; from < items.length; from += slice_length) {
    runs.push(items.slice(from, from + slice_length).sort(compare));
    await pause();
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let index = 0; index < runs.length; index += 2) {
      merged.push(await mergeRuns(runs[index] ?? [], runs[index + 1] ?? [], compare, pause));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function mergeRuns<T>(
  left: readonly T[],
  right: readonly T[],
  compare: (a: T, b: T) => number,
  pause: () => Promise<void>,
): Promise<T[]> {
  const merged: T[] = [];
  let [leftIndex, rightIndex] = [0, 0];
  while (leftIndex < left.length && rightIndex < right.length) {
    const [a, b] = [left[leftIndex] as T, right[rightIndex] as T];
    if (compare(a, b) <= 0) {
      merged.push(a);
      leftIndex += 1;
    } else {
      merged.push(b);
      rightIndex += 1;
    }
    if (merged.length % slice_length === 0) await pause();
  }
  return merged.concat(left.slice(leftIndex), right.slice(rightIndex));
}

/** Puts items into a random order, as `sortInSlices`. */
export async function sortRandomly<T>(items: readonly T[], pause: () => Promise<void>): Promise<T[]> {
  const ranked = items.map((item) => ({ item, rank: Math.random() }));
  return (await sortInSlices(ranked, (a, b) => a.rank - b.rank, pause)).map(({ item }) => item);
}
