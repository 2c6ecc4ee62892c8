import { isPlainObject } from '../schema/fields/object.js';
import type { Fields, Values } from '../schema/fields.js';

/**
 * Converts JSON to Maps, which the driver writes key by key. In objects it would interpret `_bsontype`, `toBSON` and
 * `__proto__`. Stored documents stay readable in a mongo shell.
 */
export function toMap(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toMap);
  if (!isPlainObject(value)) return value;
  return new Map(Object.entries(value).map(([key, member]) => [key, toMap(member)]));
}

/** Converts the free-form fields of `values` for the driver. */
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
