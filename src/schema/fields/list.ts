import type { FieldType } from '../fields.js';

/** A list of `min` to `max` values of one type. Errors name the position of a wrong value: `types.0`. */
export function list(item: FieldType, { min = 0, max }: { min?: number; max: number }): FieldType {
  return {
    body: (value, path, faults) => {
      if (!Array.isArray(value) || value.length < min || value.length > max) {
        faults[path] = `must be a list of ${min} to ${max} values`;
        return undefined;
      }
      return value.map((element, index) => item.body(element, `${path}.${index}`, faults));
    },
    stored: 'object',
    schema: { type: 'array', items: item.schema, minItems: min, maxItems: max },
  };
}
