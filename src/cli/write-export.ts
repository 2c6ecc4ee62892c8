import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Continuation, continuations } from './continuation.js';
import { createRecordTracker, type ExportFormat, type ExportPosition } from './records.js';
import { createStreamClient, describeCause, type OpenStream, parseBody, RetryableError } from './stream-client.js';

export interface ExportOptions {
  /** The service's {base_url}. */
  url: string;
  key: string;
  /** Such as `devices` or `groups/G@demo/devices`. */
  list: string;
  filters: ReadonlyMap<string, string>;
  format: ExportFormat;
  /** Position at the end of an earlier run, to continue there. */
  written?: ExportPosition;
  /** Takes complete records. */
  write: (records: Buffer) => Promise<void>;
  showProgress: (done: number, total: number) => void;
}

const orderParameters = ['sort', 'order', 'offset', 'after'];
const retry_delays_ms = [250, 1000, 4000, 8000];
const count_limit_ms = 15_000;

/**
 * Writes all objects of a list. After a lost connection it continues after the last complete object, where the list allows
 * that. @returns the number of objects. @throws Error with a message of one line
 */
export async function writeExport(options: ExportOptions): Promise<number> {
  const { filters, format, write, showProgress } = options;
  const open = createStreamClient(options.url, options.key);
  const segments = options.list.split('/').filter((segment) => segment !== '');
  const path = `/${segments.map(encodeURIComponent).join('/')}/`;
  const hasOrder = orderParameters.some((parameter) => filters.has(parameter));
  const continuation = hasOrder ? undefined : continuations.get(segments.at(-1) ?? '');
  const max = filters.has('max') ? Number(filters.get('max')) : Number.POSITIVE_INFINITY;
  const total = Math.min(max, await countObjects(open, options, path));
  let { count, last, header }: ExportPosition = options.written ?? { count: 0, last: undefined, header: undefined };

  /** Exports what is left. @returns false if it has to be continued */
  async function exportRest(): Promise<boolean> {
    const after = last === undefined ? continuation?.first : continuation?.formatAfter(last);
    if (count > 0 && after === undefined) throw new Error(explainInterruption(continuation));
    if (count >= max) return true;
    const query = new URLSearchParams([...filters, ...Object.entries(continuation?.order ?? {}), ['format', format]]);
    if (after !== undefined) query.set('after', after);
    if (filters.has('max')) query.set('max', String(max - count));
    const tracker = createRecordTracker(format);
    const earlier = { count, header };
    try {
      for await (const chunk of await open('GET', `${path}?${query}`)) {
        const records = tracker.push(chunk);
        if (records.length === 0) continue;
        const isHeaderRepeated = earlier.header !== undefined && records.indexOf(earlier.header) === 0;
        if (isHeaderRepeated) await write(records.subarray(earlier.header?.length));
        else await write(records);
        showProgress(earlier.count + tracker.count(), Math.max(total, earlier.count + tracker.count()));
      }
      if (tracker.rest().length > 0) throw new RetryableError('the answer ends within an object');
      return true;
    } catch (error) {
      if (error instanceof Error && isLostConnection(error)) return false;
      throw error;
    } finally {
      const position = tracker.position();
      header ??= position.header;
      count += position.count;
      if (position.count > 0) ({ last } = position);
    }
  }

  for (let failures = 0; ; failures += 1) {
    const before = count;
    if (await exportRest()) return count;
    if (count > before) failures = 0;
    const delay_ms = retry_delays_ms[failures];
    if (delay_ms === undefined) throw new RetryableError(`${options.url} is unreachable: the connection was lost`);
    await sleep(delay_ms);
  }
}

function explainInterruption(continuation: Continuation | undefined): string {
  const reason = 'the export was interrupted and cannot be continued; start it again';
  return continuation === undefined ? reason : `${reason}, and let fields contain ${continuation.fields.join(', ')}`;
}

/** Counts the objects of the list. @throws Error if the service refuses the list */
async function countObjects(open: OpenStream, { url, filters }: ExportOptions, path: string): Promise<number> {
  const query = new URLSearchParams([...filters].filter(([name]) => name !== 'after' && name !== 'fields'));
  query.set('max', '1');
  query.delete('offset');
  // an unreachable service is reported at once
  const answer = await open('GET', `${path}?${query}`, { signal: AbortSignal.timeout(count_limit_ms) });
  const { total_documents = 0 } = parseBody<{ total_documents?: number }>(await text(answer), url);
  return total_documents;
}

function isLostConnection(error: Error): boolean {
  return (
    error instanceof RetryableError || /^(?:ECONN|EPIPE|ERR_STREAM|aborted|Z_BUF_ERROR)/.test(describeCause(error))
  );
}
