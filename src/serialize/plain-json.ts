import { toBuffer } from './bson.js';
import { JsonWriter } from './json.js';

/** Decodes a stored document to plain JSON values; keys such as `__proto__` and `$ref` are not interpreted. */
export function toPlainJson(bson: Uint8Array): Record<string, unknown> {
  const out = new JsonWriter(bson.length * 2);
  out.writeDocument(toBuffer(bson));
  return JSON.parse(out.take().toString()) as Record<string, unknown>;
}
