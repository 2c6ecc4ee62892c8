import { isPlainObject } from '../schema/fields/object.js';
import type { Fields, Values } from '../schema/fields.js';

/**
 * A free-form value on its way to the database (reference/identifiers.md#free-form-objects). It is kept as JSON text,
 * because parsed JSON takes up to 20 times the memory; the driver calls `toBSON` when it serializes the document.
 */
export class OpaqueJson {
  readonly #json: string;

  constructor(value: unknown) {
    this.#json = JSON.stringify(value);
  }

  /** Length of the text in bytes. */
  get size(): number {
    return Buffer.byteLength(this.#json);
  }

  parse(): unknown {
    return JSON.parse(this.#json);
  }

  toBSON(): unknown {
    return toDriverValue(this.parse());
  }
}

/**
 * An object that the driver takes for a Map, whose entries it stores key by key; in objects it would interpret
 * `_bsontype` and `toBSON`. A real Map of each object takes far more memory. Documents stay readable in a mongo shell.
 */
class Entries {
  readonly #object: Values;

  constructor(object: Values) {
    this.#object = object;
  }

  get [Symbol.toStringTag](): string {
    return 'Map';
  }

  [Symbol.iterator](): Iterator<[string, unknown]> {
    return this.entries();
  }

  entries(): Iterator<[string, unknown]> {
    const object = this.#object;
    const keys = Object.keys(object);
    let next = 0;
    return {
      next() {
        const key = keys[next++];
        return key === undefined ? { done: true, value: undefined } : { value: [key, toDriverValue(object[key])] };
      },
    };
  }
}

function toDriverValue(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toDriverValue);
  return isPlainObject(value) ? new Entries(value) : value;
}

/** Converts the free-form fields of `values` for the driver. */
export function toDriverValues(fields: Fields, values: Values): Values {
  const stored: Values = {};
  for (const [key, value] of Object.entries(values)) {
    const kind = fields[key]?.type.stored;
    if (kind === 'freeform') stored[key] = new OpaqueJson(value);
    else if (kind === 'binary' && typeof value === 'string') stored[key] = Buffer.from(value, 'base64');
    else stored[key] = value;
  }
  return stored;
}

/** Returns the bytes of the free-form members, nearly; all others together take a few hundred. */
export function sizeOfOpaque(values: object): number {
  let size = 0;
  for (const value of Object.values(values)) if (value instanceof OpaqueJson) size += value.size;
  return size;
}
