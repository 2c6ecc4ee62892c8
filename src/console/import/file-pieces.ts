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

/** Divides a file into pieces of so many records; line breaks in quoted cells of CSV end no record. */
export async function findPieces(file: Blob, isCsv: boolean, max_records: number): Promise<FilePieces> {
  const pieces: Piece[] = [];
  const header = { bytes: 0, lines: 0 };
  let [position, lines, records, isQuoted, last] = [0, 0, 0, false, line_feed];
  let piece = { start: 0, lines_before: 0 };
  const reader = file.stream().getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    for (const byte of part.value) {
      position++;
      last = byte;
      if (isCsv && byte === quote) isQuoted = !isQuoted;
      if (byte !== line_feed) continue;
      lines++;
      if (isQuoted) continue;
      if (isCsv && header.bytes === 0) {
        Object.assign(header, { bytes: position, lines });
        piece = { start: position, lines_before: lines };
      } else if (++records === max_records) {
        pieces.push({ ...piece, end: position });
        piece = { start: position, lines_before: lines };
        records = 0;
      }
    }
  }
  if (position > piece.start || pieces.length === 0) pieces.push({ ...piece, end: position });
  return {
    header_bytes: header.bytes,
    header_lines: header.lines,
    lines: last === line_feed ? lines : lines + 1,
    pieces,
  };
}
