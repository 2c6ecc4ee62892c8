import { JsonWriter } from './json.js';
import type { Writer } from './writer.js';
import { XmlWriter } from './xml.js';

export type Format = 'json' | 'xml';

/** Creates a writer. @param capacity bytes of its first buffer */
export function createWriter(format: Format, capacity: number): Writer {
  return format === 'json' ? new JsonWriter(capacity) : new XmlWriter(capacity);
}
