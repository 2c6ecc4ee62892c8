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

/** Bytes that the driver serializes in one turn of the event loop; this much, all in short values, takes about 40 ms. */
export const max_batch_bytes = 512 * 1024;

/** Splits a list into parts of at most `size`, and of `max_bytes` or one item if `bytesOf` counts the bytes of each. */
export function* splitIntoBatches<Item>(
  items: readonly Item[],
  size: number,
  bytesOf: (item: Item) => number = () => 0,
  max_bytes = max_batch_bytes,
): Generator<readonly Item[]> {
  let from = 0;
  let bytes = 0;
  for (const [index, item] of items.entries()) {
    const added = bytesOf(item);
    if (index > from && (index - from === size || bytes + added > max_bytes)) {
      yield items.slice(from, index);
      from = index;
      bytes = 0;
    }
    bytes += added;
  }
  if (from < items.length) yield items.slice(from);
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
