/** The beginning of a CSV whose first line names the separator. */
const separatorLine = /^\uFEFF?"?sep=([,;])"?[\r\n]+/i;

/** Reads the names of the columns of a CSV, or of the fields of the first line of NDJSON. */
export function readColumns(text: string, isCsv: boolean): string[] {
  if (isCsv) {
    const [header = ''] = text
      .replace(separatorLine, '')
      .replace(/^\uFEFF/, '')
      .split(/[\r\n]/);
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

/** A position between two records. */
interface Boundary {
  position: number;
  /** Lines before it. */
  lines: number;
}

/** Reads a file up to its end; line breaks in quoted cells of CSV end no record. @param onEnd called after each record that ends with a line */
async function scanRecords(file: Blob, isCsv: boolean, onEnd: (end: Boundary) => void): Promise<Boundary> {
  let [position, lines, isQuoted, last] = [0, 0, false, line_feed];
  function endLine(): void {
    lines++;
    if (!isQuoted) onEnd({ position, lines });
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
  if (last === carriage_return) endLine();
  return { position, lines: last === line_feed || last === carriage_return ? lines : lines + 1 };
}

/** Records before those of objects: the header of a CSV, and a line before it that names the separator. */
async function countHeaders(file: Blob, isCsv: boolean): Promise<number> {
  if (!isCsv) return 0;
  return separatorLine.test(await file.slice(0, 16).text()) ? 2 : 1;
}

/** Divides a file into pieces of so many records. */
export async function findPieces(file: Blob, isCsv: boolean, max_records: number): Promise<FilePieces> {
  const pieces: Piece[] = [];
  const header = { bytes: 0, lines: 0 };
  let headers = await countHeaders(file, isCsv);
  let records = 0;
  let piece = { start: 0, lines_before: 0 };
  const { position: end, lines } = await scanRecords(file, isCsv, ({ position, lines: lines_before }) => {
    const next = { start: position, lines_before };
    if (headers > 0) {
      headers--;
      Object.assign(header, { bytes: position, lines: lines_before });
      piece = next;
    } else if (++records === max_records) {
      pieces.push({ ...piece, end: position });
      piece = next;
      records = 0;
    }
  });
  if (end > piece.start || pieces.length === 0) pieces.push({ ...piece, end });
  return { header_bytes: header.bytes, header_lines: header.lines, lines, pieces };
}

/** Copies the records of a file that begin at these lines, counted from 1, with the header of a CSV. */
export async function pickRecords(file: Blob, isCsv: boolean, lines: ReadonlySet<number>): Promise<Blob> {
  const parts: { start: number; end: number }[] = [];
  let begin: Boundary = { position: 0, lines: 0 };
  let headers = await countHeaders(file, isCsv);
  function pick(end: number): void {
    const last = parts.at(-1);
    if (headers-- <= 0 && !lines.has(begin.lines + 1)) return;
    if (last?.end === begin.position) last.end = end;
    else parts.push({ start: begin.position, end });
  }
  const end = await scanRecords(file, isCsv, (boundary) => {
    pick(boundary.position);
    begin = boundary;
  });
  if (end.position > begin.position) pick(end.position);
  return new Blob(parts.map((part) => file.slice(part.start, part.end)));
}
