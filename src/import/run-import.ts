import { type AppError, failures } from '../errors.js';
import { createCloseSignal } from '../http/close-signal.js';
import type { RequestContext } from '../http/context.js';
import { waitForDrain } from '../http/wait-for-drain.js';
import { awaitLater } from '../lib/promises.js';
import { createShares } from '../lib/shares.js';
import type { ImportOutcome } from './import-line.js';
import type { ImportLine } from './read-lines.js';

/** Bytes of the lines in work; a longer line is worked on alone. */
const max_line_bytes = 2 * 1024 * 1024;
/** What a shorter line counts for, so that at most 256 are in work. */
const min_line_bytes = max_line_bytes / 256;
/** Answers that a client may leave unread while it still sends. */
const max_unread_bytes = 4 * 1024 * 1024;

/** Memory that one import may hold. */
export const import_memory_bytes = max_line_bytes + max_unread_bytes;

/** Outcome of one line. */
export type LineOutcome = ImportOutcome | AppError;

const counters = { 2001: 'created', 2005: 'updated', 2007: 'skipped' } as const;

/**
 * Carries out lines while they arrive, and answers each of them in their order (reference/import.md#answer). Reads no faster
 * than the lines are carried out and answered; stops when the client leaves. @param apply never rejects
 */
export async function runImport(
  batches: AsyncIterable<readonly ImportLine[]>,
  apply: (line: ImportLine) => Promise<LineOutcome>,
  response: RequestContext['response'],
): Promise<void> {
  const totals = { created: 0, updated: 0, skipped: 0, failed: 0 };
  const inWork = createShares({ capacity: max_line_bytes, max_per_account: max_line_bytes, max_waiting: 1 });
  const signal = createCloseSignal(response);
  let answered = Promise.resolve();
  let text = '';

  /** Sends the answers of one turn of the event loop together. */
  function flush(): void {
    if (text !== '' && !signal.aborted) response.write(text);
    text = '';
  }

  async function answer(line: number, pending: Promise<LineOutcome>, before: Promise<void>): Promise<void> {
    await before;
    const outcome = await pending;
    totals['failure' in outcome ? 'failed' : counters[outcome.code]]++;
    if (text === '') setImmediate(flush);
    text += describeOutcome(line, outcome);
    if (response.writableLength > max_unread_bytes) await waitForDrain(response, signal);
  }

  try {
    for await (const lines of batches) {
      for (const line of lines) {
        const amount = Math.min(Math.max(line.bytes, min_line_bytes), max_line_bytes);
        const release = await inWork.acquire('', { amount, signal });
        signal.throwIfAborted();
        answered = awaitLater(answer(line.line, awaitLater(apply(line)), answered).finally(release));
      }
    }
  } finally {
    // lines in work keep their memory until they are done, also if the body breaks off
    await answered;
  }
  response.end(`${text}${JSON.stringify({ totals })}\n`);
  text = '';
}

function describeOutcome(line: number, outcome: LineOutcome): string {
  const described =
    'failure' in outcome
      ? { line, code: failures[outcome.failure].code, details: outcome.details }
      : { line, code: outcome.code, id_developer: outcome.id_developer };
  return `${JSON.stringify(described)}\n`;
}
