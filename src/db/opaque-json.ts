import type { Fields, Values } from '../schema/fields.js';
import { isPlainObject } from '../schema/fields.js';

/**
 * Converts JSON to Maps, which the driver writes key by key; in objects it would look for `_bsontype` and `toBSON`.
 * Stored documents stay legible in a mongo shell (reference/identifiers.md#free-form-objects).
 */
export function toMap(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toMap);
  if (!isPlainObject(value)) return value;
  return new Map(Object.entries(value).map(([key, member]) => [key, toMap(member)]));
}

/** Converts the values of a request to those that the driver stores. */
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
