import { parse } from 'csv-parse/sync';
import { removeGuard } from '../import/parse-csv.js';

export type ExportFormat = 'csv' | 'ndjson';

/** End of the records exported so far. */
export interface ExportPosition {
  /** Records, without the header of CSV. */
  count: number;
  /** Members of the last record, in CSV as texts; undefined if there is none. */
  last: Readonly<Record<string, unknown>> | undefined;
  /** First record of CSV. */
  header: Buffer | undefined;
}

const [quote, newline] = [0x22, 0x0a];

/**
 * Creates a tracker that follows the records of an export from its first byte, to know up to where it is whole and after
 * which object to continue.
 */
export function createRecordTracker(format: ExportFormat) {
  let pending: Buffer = Buffer.alloc(0);
  let scanned = 0;
  let isQuoted = false;
  let header: Buffer | undefined;
  let last: Buffer | undefined;
  let count = 0;
  return {
    /** Takes the next bytes. @returns the bytes of all records that are complete now and were not returned before */
    push(chunk: Buffer): Buffer {
      pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
      let end = 0;
      for (; scanned < pending.length; scanned++) {
        const byte = pending[scanned];
        if (byte === quote && format === 'csv') isQuoted = !isQuoted;
        if (byte !== newline || isQuoted) continue;
        const record = pending.subarray(end, scanned + 1);
        end = scanned + 1;
        if (format === 'csv' && header === undefined) header = record;
        else {
          last = record;
          count++;
        }
      }
      const complete = pending.subarray(0, end);
      pending = pending.subarray(end);
      scanned -= end;
      return complete;
    },
    /** Returns the bytes of an incomplete record. */
    rest: () => pending,
    /** Returns the number of complete records, without the header of CSV. */
    count: () => count,
    /** Returns where to continue after them. */
    position(): ExportPosition {
      return { count, last: last && (format === 'csv' ? readRow(header, last) : JSON.parse(last.toString())), header };
    },
  };
}

/** Reads the cells by column, without the `'` that keeps spreadsheets from executing them. */
function readRow(header: Buffer | undefined, record: Buffer): Record<string, string> {
  const bytes = Buffer.concat([header ?? Buffer.alloc(0), record]);
  const [row = {}] = parse(bytes, { columns: true, bom: true }) as Record<string, string>[];
  return Object.fromEntries(Object.entries(row).map(([column, cell]) => [column, removeGuard(cell)]));
}
