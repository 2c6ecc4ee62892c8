import { CsvWriter } from './csv.js';
import type { RowFormat } from './format.js';
import { JsonWriter } from './json.js';
import type { ListOutput } from './list.js';
import type { Projection } from './projections.js';
import type { Writer } from './writer.js';

const initial_bytes = 16 * 1024;
const newline = Buffer.from('\n');

export interface RowsOptions<Context> {
  projection: Projection<Context>;
  format: RowFormat;
  context: Context;
  /** Columns of CSV. */
  columns: readonly string[];
  /** Names that the header line shows in place of the columns. */
  headings?: readonly string[] | undefined;
}

/** Writes a list as CSV with a header line, or as one JSON object a line (reference/exports.md#formats). */
export class RowsWriter<Context> implements ListOutput {
  readonly #projection: Projection<Context>;
  readonly #context: Context;
  readonly #out: Writer;
  readonly #endRow: () => void;

  constructor({ projection, format, context, columns, headings }: RowsOptions<Context>) {
    this.#projection = projection;
    this.#context = context;
    if (format === 'csv') {
      const csv = new CsvWriter(initial_bytes, columns);
      csv.writeHeader(headings);
      this.#out = csv;
      this.#endRow = () => undefined;
    } else {
      const json = new JsonWriter(initial_bytes);
      this.#out = json;
      this.#endRow = () => json.writeRaw(newline);
    }
  }

  get size(): number {
    return this.#out.length;
  }

  append(bson: Uint8Array): void {
    this.#projection.write(bson, this.#out, this.#context);
    this.#endRow();
  }

  appendValue(value: unknown): void {
    this.#out.writeValue(value);
    this.#endRow();
  }

  take(): Buffer {
    return this.#out.take();
  }

  end(): Buffer {
    return this.#out.take();
  }
}
