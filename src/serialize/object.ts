import { bsonType } from './bson.js';
import { createWriter, type Format } from './format.js';
import type { Projection } from './projections.js';

const response = Buffer.from('response');
const details = Buffer.from('details');

/** Code and message of a status body. */
export interface StatusHead {
  code: number;
  message: string;
}

/** Writes one object as a document of its own: `{…}`, or `<device>…</device>` as the root. */
export function writeObject<Context>(
  bson: Uint8Array,
  projection: Projection<Context>,
  format: Format,
  context: Context,
): Buffer {
  const out = createWriter(format, initialCapacity(bson));
  out.openRoot(projection.element);
  projection.write(bson, out, context);
  out.closeNamed(projection.element);
  return out.take();
}

/** Writes a status body whose `details` are the object (reference/requests.md#answers). */
export function writeStatus<Context>(
  { code, message }: StatusHead,
  bson: Uint8Array,
  projection: Projection<Context>,
  format: Format,
  context: Context,
): Buffer {
  const out = createWriter(format, initialCapacity(bson));
  out.openRoot(response);
  out.openContainer(bsonType.document);
  out.member('code', code);
  out.member('message', message);
  out.openNamed(details);
  projection.write(bson, out, context);
  out.closeNamed(details);
  out.closeContainer(bsonType.document);
  out.closeNamed(response);
  return out.take();
}

/** Puts an object that is already JSON into a status body: the JSON of `writeStatus`. */
export function buildJsonStatus({ code, message }: StatusHead, json: Buffer): Buffer {
  const head = JSON.stringify({ code, message }).slice(0, -1);
  return Buffer.concat([Buffer.from(`${head},"details":`), json, Buffer.from('}')]);
}

function initialCapacity(bson: Uint8Array): number {
  return bson.length * 2 + 512;
}
