import { awaitLater } from './promises.js';

/** Groups the items of an iteration in arrays of `size`; the last one may be smaller. @param first from here the sizes grow */
export async function* readInBatches<Item>(
  items: AsyncIterable<Item>,
  size: number,
  first = size,
): AsyncGenerator<readonly Item[]> {
  let batch: Item[] = [];
  let limit = first;
  for await (const item of items) {
    batch.push(item);
    if (batch.length < limit) continue;
    yield batch;
    batch = [];
    limit = Math.min(limit * 10, size);
  }
  if (batch.length > 0) yield batch;
}

/** Splits a list into parts of `size`; the last one may be smaller. */
export function* splitIntoBatches<Item>(items: readonly Item[], size: number): Generator<readonly Item[]> {
  for (let from = 0; from < items.length; from += size) yield items.slice(from, from + size);
}

/** Reads one batch ahead, so that the database works while the previous batch is written. */
export async function* readAhead<T>(batches: AsyncGenerator<T>): AsyncGenerator<T> {
  let pending = awaitLater(batches.next());
  try {
    for (;;) {
      const { done, value } = await pending;
      if (done === true) return;
      pending = awaitLater(batches.next());
      yield value;
    }
  } finally {
    await pending.catch(() => undefined);
    await batches.return(undefined);
  }
}
