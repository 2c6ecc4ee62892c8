/** The beginning of a CSV whose first line names the separator. */
const separatorLine = /^\uFEFF?"?sep=([,;])"?[\r\n]+/i;

/** Reads the names of the columns of a CSV, or of the fields of the first line of NDJSON. */
export function readColumns(text: string, isCsv: boolean): string[] {
  if (isCsv) {
    const [header = ''] = text.replace(separatorLine, '').split(/[\r\n]/);
    const counted = header.split(';').length > header.split(',').length ? ';' : ',';
    const separator = separatorLine.exec(text)?.[1] ?? counted;
    return header.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, '$1'));
  }
  try {
    const line: unknown = JSON.parse(text.split('\n').find((content) => content.trim() !== '') ?? '');
    return typeof line === 'object' && line !== null ? Object.keys(line) : [];
  } catch {
    return [];
  }
}

/** A part of a file that ends with a record. */
export interface Piece {
  start: number;
  end: number;
  /** Lines of the file before it. */
  lines_before: number;
}

/** Positions of the records of a file. A CSV begins with a header, which each piece needs. */
export interface FilePieces {
  header_bytes: number;
  header_lines: number;
  lines: number;
  pieces: readonly Piece[];
}

const [quote, line_feed, carriage_return] = [0x22, 0x0a, 0x0d];

/** A line, or in CSV several with line breaks in a quoted cell. */
interface FileRecord {
  start: number;
  end: number;
  lines_before: number;
  lines_behind: number;
  isHeader: boolean;
}

/** Reads all records of a file. A CSV begins with a header, and may name its separator in a line before it. */
async function scanRecords(file: Blob, isCsv: boolean, onRecord: (record: FileRecord) => void): Promise<void> {
  let headers = Number(isCsv) + Number(isCsv && separatorLine.test(await file.slice(0, 16).text()));
  let [start, position, lines_before, lines_behind, isQuoted, last] = [0, 0, 0, 0, false, 0];
  function endLine(): void {
    lines_behind++;
    if (isQuoted && position < file.size) return;
    onRecord({ start, end: position, lines_before, lines_behind, isHeader: headers-- > 0 });
    [start, lines_before] = [position, lines_behind];
  }
  const reader = file.stream().getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    for (const byte of part.value) {
      if (last === carriage_return && byte !== line_feed) endLine();
      position++;
      last = byte;
      if (isCsv && byte === quote) isQuoted = !isQuoted;
      if (byte === line_feed) endLine();
    }
  }
  if (position > start) endLine();
}

/** Divides a file into pieces of so many records. */
export async function findPieces(file: Blob, isCsv: boolean, max_records: number): Promise<FilePieces> {
  const pieces: Piece[] = [];
  let [header_bytes, header_lines, lines, records] = [0, 0, 0, 0];
  await scanRecords(file, isCsv, ({ start, end, lines_before, lines_behind, isHeader }) => {
    lines = lines_behind;
    const piece = pieces.at(-1);
    if (isHeader) [header_bytes, header_lines] = [end, lines];
    else if (records++ % max_records === 0 || piece === undefined) pieces.push({ start, end, lines_before });
    else piece.end = end;
  });
  if (pieces.length === 0) pieces.push({ start: header_bytes, end: file.size, lines_before: header_lines });
  return { header_bytes, header_lines, lines, pieces };
}

/** Copies the records of a file that begin at these lines, counted from 1, with the header of a CSV. */
export async function pickRecords(file: Blob, isCsv: boolean, lines: ReadonlySet<number>): Promise<Blob> {
  const parts: { start: number; end: number }[] = [];
  await scanRecords(file, isCsv, ({ start, end, lines_before, isHeader }) => {
    const last = parts.at(-1);
    if (!isHeader && !lines.has(lines_before + 1)) return;
    if (last?.end === start) last.end = end;
    else parts.push({ start, end });
  });
  return new Blob(parts.map((part) => file.slice(part.start, part.end)));
}
