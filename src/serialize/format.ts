import { JsonWriter } from './json.js';
import type { Writer } from './writer.js';
import { XmlWriter } from './xml.js';

export type Format = 'json' | 'xml';

/** Formats with one object a row, without an envelope (reference/exports.md#formats). */
export type RowFormat = 'csv' | 'ndjson';

/** Creates a writer. @param capacity bytes of its first buffer */
export function createWriter(format: Format, capacity: number): Writer {
  return format === 'json' ? new JsonWriter(capacity) : new XmlWriter(capacity);
}
