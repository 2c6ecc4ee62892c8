import { send } from '../api/client.js';
import { readLines } from '../api/event-stream.js';
import { type FilePieces, findPieces, readColumns } from './file-pieces.js';

export interface LineResult {
  line: number;
  code: number;
  id_developer?: string;
  details?: unknown;
}

export interface ImportProgress {
  lines: number;
  /** The first lines that failed. */
  failed: readonly LineResult[];
  /** The numbers of all lines that failed. */
  failed_lines: ReadonlySet<number>;
  /** Numbers of the pieces that are complete. */
  totals: Readonly<Record<string, number>>;
}

export interface ImportFile extends FilePieces {
  file: File;
  isCsv: boolean;
  /** Names of its columns, or of the fields of its first line. */
  columns: readonly string[];
}

interface ImportOptions {
  query: Readonly<Record<string, string>>;
  signal: AbortSignal;
  onProgress(progress: ImportProgress): void;
}

/**
 * A browser reads an answer only once it has sent the request, while the service waits with the rest when 4 MiB of
 * answers are not read (`reference/import.md#answer`): the answers to a piece are fewer.
 */
const piece_records = 10_000;
const max_failed_lines = 200;
/** The columns are looked for in the beginning of a file. */
const max_head_bytes = 65_536;
const progress_step = 100;

/** Divides a file, whose name says whether it is CSV. */
export async function openImportFile(file: File): Promise<ImportFile> {
  const isCsv = /\.csv$/i.test(file.name);
  const columns = readColumns(await file.slice(0, max_head_bytes).text(), isCsv);
  return { file, isCsv, columns, ...(await findPieces(file, isCsv, piece_records)) };
}

/** Sends the pieces of a file one after the other, and reads the answer to each line while it arrives. @throws RequestError */
export async function importPieces(source: ImportFile, count: number, options: ImportOptions): Promise<void> {
  const { file, isCsv, header_bytes, header_lines, pieces } = source;
  const { query, signal, onProgress } = options;
  let lines = 0;
  const failed: LineResult[] = [];
  const failed_lines = new Set<number>();
  const totals: Record<string, number> = {};
  const report = () => onProgress({ lines, failed: [...failed], failed_lines, totals: { ...totals } });
  for (const { start, end, lines_before } of pieces.slice(0, count)) {
    const content = new Blob([file.slice(0, header_bytes), file.slice(start, end)]);
    const headers = { 'Content-Type': isCsv ? 'text/csv' : 'application/x-ndjson' };
    const { body } = await send('POST', '/import/', { query, body: content, signal, headers });
    if (body === null) continue;
    for await (const text of readLines(body, signal)) {
      if (text === '') continue;
      const entry = JSON.parse(text) as LineResult | { totals: Record<string, number> };
      if ('totals' in entry) {
        for (const [name, number] of Object.entries(entry.totals)) totals[name] = (totals[name] ?? 0) + number;
        continue;
      }
      lines++;
      // the header is a line of every piece
      const line = entry.line > header_lines ? entry.line - header_lines + lines_before : entry.line;
      if (entry.code >= 4000) {
        failed_lines.add(line);
        if (failed.length < max_failed_lines) failed.push({ ...entry, line });
      }
      if (lines % progress_step === 0) report();
    }
    signal.throwIfAborted();
    report();
  }
}
