import { type AppError, failures } from '../errors.js';
import type { RequestContext } from '../http/context.js';
import { waitForDrain } from '../http/wait-for-drain.js';
import { awaitLater } from '../lib/promises.js';
import type { ImportOutcome } from './import-line.js';
import type { ImportLine } from './read-lines.js';

/** Lines in work at once. */
const max_lines = 256;
/** Bytes of the lines in work; a longer line is worked on alone. */
const max_line_bytes = 2 * 1024 * 1024;
/** Answers that a client may leave unread while it still sends. */
const max_unread_bytes = 4 * 1024 * 1024;
/** Answers that are sent together. */
const chunk_bytes = 32 * 1024;

/** Memory that one import may hold. */
export const import_memory_bytes = max_line_bytes + max_unread_bytes;

/** Outcome of one line. */
export type LineOutcome = ImportOutcome | AppError;

interface PendingLine {
  line: number;
  bytes: number;
  outcome: Promise<LineOutcome>;
}

const counterOf: ReadonlyMap<number, 'created' | 'updated' | 'skipped'> = new Map([
  [2001, 'created'],
  [2005, 'updated'],
  [2007, 'skipped'],
]);

/**
 * Carries out lines while they arrive, and answers each of them in their order (reference/import.md#answer). Reads no faster
 * than the lines are carried out and answered; stops when the client leaves. @param apply never rejects
 */
export async function runImport(
  batches: AsyncIterable<readonly ImportLine[]>,
  apply: (line: ImportLine) => Promise<LineOutcome>,
  response: RequestContext['response'],
): Promise<void> {
  const pending: PendingLine[] = [];
  const totals = { created: 0, updated: 0, skipped: 0, failed: 0 };
  const left = new AbortController();
  response.once('close', () => left.abort());
  let bytes_in_work = 0;
  let isRead = false;
  let wakeReader = () => {};
  let wakeWriter = () => {};

  async function read(): Promise<void> {
    try {
      for await (const lines of batches) {
        for (const line of lines) {
          while (pending.length >= max_lines || (pending.length > 0 && bytes_in_work + line.bytes > max_line_bytes)) {
            await new Promise<void>((resolve) => {
              wakeReader = resolve;
            });
          }
          if (left.signal.aborted) return;
          bytes_in_work += line.bytes;
          pending.push({ line: line.line, bytes: line.bytes, outcome: awaitLater(apply(line)) });
          wakeWriter();
        }
      }
    } finally {
      isRead = true;
      wakeWriter();
    }
  }

  async function write(): Promise<void> {
    let text = '';
    for (;;) {
      const next = pending[0];
      if (next === undefined || text.length > chunk_bytes) {
        if (text !== '') await send(response, text, left.signal);
        text = '';
      }
      if (next === undefined) {
        if (isRead) return;
        await new Promise<void>((resolve) => {
          wakeWriter = resolve;
        });
        continue;
      }
      const outcome = await next.outcome;
      pending.shift();
      bytes_in_work -= next.bytes;
      wakeReader();
      text += describeOutcome(next.line, outcome);
      totals[counterOf.get('failure' in outcome ? 0 : outcome.code) ?? 'failed']++;
    }
  }

  // lines in work keep their memory until they are done, also if the body breaks off
  const [reading] = await Promise.allSettled([read(), write()]);
  if (reading.status === 'rejected') throw reading.reason;
  response.end(`${JSON.stringify({ totals })}\n`);
}

function describeOutcome(line: number, outcome: LineOutcome): string {
  const described =
    'failure' in outcome
      ? { line, code: failures[outcome.failure].code, details: outcome.details }
      : { line, code: outcome.code, id_developer: outcome.id_developer };
  return `${JSON.stringify(described)}\n`;
}

/** Sends answers, and waits for a client that leaves too much unread. */
async function send(response: RequestContext['response'], text: string, left: AbortSignal): Promise<void> {
  if (left.aborted) return;
  response.write(text);
  if (response.writableLength > max_unread_bytes) await waitForDrain(response, left);
}
