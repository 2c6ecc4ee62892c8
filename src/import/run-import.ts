import { AppError, failures } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import { createShares } from '../lib/shares.js';
import { type HeldAnswers, held_memory_bytes } from './held-answers.js';
import type { LineOutcome } from './import-line.js';
import type { ImportLine } from './read-lines.js';

/** Bytes of the lines in work; a longer line is worked on alone. */
const max_line_bytes = 2 * 1024 * 1024;
/** Bytes that a shorter line counts for, so that at most 256 are in work; of streams, which share commands, 4,096. */
const min_line_bytes = max_line_bytes / 256;
const min_stream_bytes = max_line_bytes / 4096;

/** Memory that one import may hold. */
export const import_memory_bytes = max_line_bytes + held_memory_bytes;

/** A line, or streams that are stored together. */
type LineGroup = [ImportLine, ...ImportLine[]];

const counters = { 2001: 'created', 2005: 'updated', 2007: 'skipped' } as const;

/**
 * Carries out lines while they arrive, and answers each of them in their order (reference/import.md#answer). Reads no faster
 * than the lines are carried out and answered; stops when the client leaves. @param apply never rejects
 */
export async function runImport(
  batches: AsyncIterable<readonly ImportLine[]>,
  apply: (lines: LineGroup) => Promise<readonly LineOutcome[]>,
  { answers, isStream }: { answers: HeldAnswers; isStream: (line: ImportLine) => boolean },
): Promise<void> {
  const totals = { created: 0, updated: 0, skipped: 0, failed: 0 };
  const inWork = createShares({ capacity: max_line_bytes, max_per_account: max_line_bytes, max_waiting: 1 });
  const { signal } = answers;
  let answered = Promise.resolve();

  async function answer(
    lines: readonly ImportLine[],
    pending: Promise<readonly LineOutcome[]>,
    before: Promise<void>,
  ): Promise<void> {
    await before;
    const outcomes = await pending;
    for (const outcome of outcomes) totals['failure' in outcome ? 'failed' : counters[outcome.code]]++;
    await answers.add(outcomes.map((outcome, index) => describeOutcome(lines[index]?.line, outcome)).join(''));
  }

  try {
    for await (const batch of batches) {
      for (const lines of groupLines(batch, isStream)) {
        const min_bytes = lines.some(isStream) ? min_stream_bytes : min_line_bytes;
        const total = lines.reduce((sum, { bytes }) => sum + Math.max(bytes, min_bytes), 0);
        const amount = Math.min(total, max_line_bytes);
        const release = await inWork.acquire('', { amount, signal });
        signal.throwIfAborted();
        answered = awaitLater(answer(lines, awaitLater(apply(lines)), answered).finally(release));
      }
    }
  } finally {
    // lines in work keep their memory until they are done, also if the body breaks off
    await answered;
  }
  await answers.end(`${JSON.stringify({ totals })}\n`);
}

/** Groups the streams of lines that follow each other, which are stored together; every other line is alone. */
function groupLines(lines: readonly ImportLine[], isStream: (line: ImportLine) => boolean): LineGroup[] {
  const groups: LineGroup[] = [];
  for (const line of lines) {
    const last = groups.at(-1);
    if (last !== undefined && isStream(last[0]) && isStream(line)) last.push(line);
    else groups.push([line]);
  }
  return groups;
}

function describeOutcome(line: number | undefined, outcome: LineOutcome): string {
  const isFailed = outcome instanceof AppError;
  const described = isFailed ? { code: failures[outcome.failure].code, details: outcome.details } : outcome;
  return `${JSON.stringify({ line, ...described })}\n`;
}
