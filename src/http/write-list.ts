import type { Response } from 'express';
import type { Page } from '../objects/page.js';
import { isRowFormat, type ListFormat } from '../schema/list-parameters.js';
import type { ListOutput } from '../serialize/list.js';
import type { RequestContext } from './context.js';
import { contentTypes, send, setVary, waitForDrain } from './send.js';
import type { YieldTurn } from './yield-queue.js';

/** Bytes written per turn of the event loop. */
const chunk_bytes = 128 * 1024;
/** Batches of more documents than this wait for a turn of the event loop before they are written. */
const yield_threshold = 100;
/** A body up to this size is sent as a whole, with its length. */
const flush_threshold_bytes = 1024 * 1024;

interface OutgoingList {
  format: ListFormat;
  list: ListOutput;
  /** Called at the end of the list. */
  next?: Page['next'];
}

/**
 * Writes a list in pieces, no faster than the client reads, and stops when the client has left or got an answer.
 * @param prepare called for each batch; returns what appends one of its items
 */
export async function writeList<Item>(
  ctx: RequestContext,
  yieldTurn: YieldTurn,
  { format, list, next }: OutgoingList,
  batches: AsyncIterable<readonly Item[]>,
  prepare: (batch: readonly Item[]) => Promise<(item: Item) => void>,
): Promise<void> {
  const { request, response } = ctx;
  const parts: Buffer[] = [];
  let unsent_bytes = 0;
  const takeParts = () => {
    unsent_bytes = 0;
    return Buffer.concat([...parts.splice(0), list.take()]);
  };
  const stopWaiting = isRowFormat(format)
    ? keepAlive(response, () => beginOrWrite(response, format, takeParts()))
    : undefined;
  try {
    // leaving the loop closes the cursor
    for await (const batch of batches) {
      if (isAbandoned(response)) return;
      if (isRowFormat(format) && request.method === 'HEAD') {
        beginOrWrite(response, format, Buffer.alloc(0));
        response.end();
        return;
      }
      if (batch.length > yield_threshold) await yieldTurn(ctx);
      const append = await prepare(batch);
      for (const item of batch) {
        append(item);
        if (list.size < chunk_bytes) continue;
        await yieldTurn(ctx);
        unsent_bytes += list.size;
        parts.push(list.take());
        if (unsent_bytes < flush_threshold_bytes) continue;
        if (isAbandoned(response)) return;
        await writeWithBackpressure(response, format, takeParts());
      }
    }
    if (isAbandoned(response)) return;
    parts.push(list.end(next?.()));
    const rest = takeParts();
    if (response.headersSent) response.end(rest);
    else send(response, 200, format, rest);
  } finally {
    stopWaiting?.();
  }
}

/** Milliseconds between two answers of an export to a client that waits; the first must come within the time limit. */
const export_flush_ms = 2500;

/**
 * Lets an export take as long as its client reads: it begins the answer before the time limit of the request, sends what
 * there is while the database searches, and ends the connection only if the client does not read (reference/exports.md#limits).
 * @returns a function that ends this
 */
function keepAlive(response: Response, flush: () => void): () => void {
  const timer = setInterval(() => {
    if (isAbandoned(response) || response.writableNeedDrain) return;
    flush();
    // what a compressor holds back
    (response as Response & { flush?(): void }).flush?.();
  }, export_flush_ms);
  const onTimeout = () => {
    if (response.writableNeedDrain) response.destroy();
  };
  response.on('timeout', onTimeout);
  return () => {
    clearInterval(timer);
    response.off('timeout', onTimeout);
  };
}

/** Reports whether the rest of a response is no longer wanted: its client has left, or a timeout has been answered. */
function isAbandoned({ destroyed, writableEnded }: Response): boolean {
  return destroyed || writableEnded;
}

/** Begins a streamed answer if it has not begun, and writes a part. @returns false if the client must read first */
function beginOrWrite(response: Response, format: ListFormat, part: Buffer): boolean {
  if (!response.headersSent) {
    response.setHeader('Content-Type', contentTypes[format]);
    setVary(response);
  }
  if (part.length > 0) return response.write(part);
  response.flushHeaders();
  return true;
}

/** Writes part of a large body with back-pressure: no faster than the client reads. */
async function writeWithBackpressure(response: Response, format: ListFormat, part: Buffer): Promise<void> {
  if (!beginOrWrite(response, format, part)) await waitForDrain(response);
}
