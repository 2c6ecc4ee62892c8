import { type AppError, failures } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import { createShares } from '../lib/shares.js';
import { type HeldAnswers, held_memory_bytes } from './held-answers.js';
import type { ImportOutcome } from './import-line.js';
import type { ImportLine } from './read-lines.js';

/** Bytes of the lines in work; a longer line is worked on alone. */
const max_line_bytes = 2 * 1024 * 1024;
/** Bytes that a shorter line counts for, so that at most 256 are in work; of streams, which share commands, 4,096. */
const min_line_bytes = max_line_bytes / 256;
const min_stream_bytes = max_line_bytes / 4096;

/** Memory that one import may hold. */
export const import_memory_bytes = max_line_bytes + held_memory_bytes;

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
  { answers, isStream }: { answers: HeldAnswers; isStream: (line: ImportLine) => boolean },
): Promise<void> {
  const totals = { created: 0, updated: 0, skipped: 0, failed: 0 };
  const inWork = createShares({ capacity: max_line_bytes, max_per_account: max_line_bytes, max_waiting: 1 });
  const { signal } = answers;
  let answered = Promise.resolve();

  async function answer(line: number, pending: Promise<LineOutcome>, before: Promise<void>): Promise<void> {
    await before;
    const outcome = await pending;
    totals['failure' in outcome ? 'failed' : counters[outcome.code]]++;
    await answers.add(describeOutcome(line, outcome));
  }

  try {
    for await (const lines of batches) {
      for (const line of lines) {
        const amount = Math.min(
          Math.max(line.bytes, isStream(line) ? min_stream_bytes : min_line_bytes),
          max_line_bytes,
        );
        const release = await inWork.acquire('', { amount, signal });
        signal.throwIfAborted();
        answered = awaitLater(answer(line.line, awaitLater(apply(line)), answered).finally(release));
      }
    }
  } finally {
    // lines in work keep their memory until they are done, also if the body breaks off
    await answered;
  }
  await answers.end(`${JSON.stringify({ totals })}\n`);
}

function describeOutcome(line: number, outcome: LineOutcome): string {
  const described =
    'failure' in outcome
      ? { line, code: failures[outcome.failure].code, details: outcome.details }
      : { line, code: outcome.code, id_developer: outcome.id_developer };
  return `${JSON.stringify(described)}\n`;
}
