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

const [quote, line_feed] = [0x22, 0x0a];

/** A position between two records. */
interface Boundary {
  position: number;
  /** Lines before it. */
  lines: number;
}

/** Reads a file up to its end; line breaks in quoted cells of CSV end no record. @param onEnd called after each record that ends with a line */
async function scanRecords(file: Blob, isCsv: boolean, onEnd: (end: Boundary) => void): Promise<Boundary> {
  let [position, lines, isQuoted, last] = [0, 0, false, line_feed];
  const reader = file.stream().getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    for (const byte of part.value) {
      position++;
      last = byte;
      if (isCsv && byte === quote) isQuoted = !isQuoted;
      if (byte !== line_feed) continue;
      lines++;
      if (!isQuoted) onEnd({ position, lines });
    }
  }
  return { position, lines: last === line_feed ? lines : lines + 1 };
}

/** Divides a file into pieces of so many records. */
export async function findPieces(file: Blob, isCsv: boolean, max_records: number): Promise<FilePieces> {
  const pieces: Piece[] = [];
  const header = { bytes: 0, lines: 0 };
  let records = 0;
  let piece = { start: 0, lines_before: 0 };
  const { position: end, lines } = await scanRecords(file, isCsv, ({ position, lines: lines_before }) => {
    const next = { start: position, lines_before };
    if (isCsv && header.bytes === 0) {
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
  function pick(end: number): void {
    const isHeader = isCsv && begin.lines === 0;
    const last = parts.at(-1);
    if (!isHeader && !lines.has(begin.lines + 1)) return;
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
