import { isPlainObject } from '../schema/fields/object.js';
import type { Fields, Values } from '../schema/fields.js';

/**
 * JSON as Maps, which the driver writes key by key: objects it would search for `_bsontype`, `toBSON` or `__proto__`.
 * Stored documents stay legible in a mongo shell.
 */
export function toMap(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toMap);
  if (!isPlainObject(value)) return value;
  return new Map(Object.entries(value).map(([key, member]) => [key, toMap(member)]));
}

/** `values` as they are handed to the driver. */
export function toDriverValues(fields: Fields, values: Values): Values {
  const stored: Values = {};
  for (const [key, value] of Object.entries(values)) {
    const kind = fields[key]?.type.stored;
    if (kind === 'freeform') stored[key] = toMap(value);
    else if (kind === 'binary' && typeof value === 'string') stored[key] = Buffer.from(value, 'base64');
    else stored[key] = value;
  }
  return stored;
}
