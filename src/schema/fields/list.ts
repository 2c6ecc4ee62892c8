import type { FieldType, Schema } from '../fields.js';
import { describeObject } from '../openapi/bodies.js';

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
    schema: { type: 'array', items: schemaOfItem(item), minItems: min, maxItems: max },
  };
}

function schemaOfItem({ schema, members }: FieldType): Schema {
  if (members === undefined) return schema;
  return describeObject(members, ({ type }) => type.schema, { additionalProperties: false, ...schema });
}

/** A query parameter: 1 to `max` different values that `parse` accepts, separated by commas. */
export function commaSeparated<T>(
  type: FieldType,
  { parse, hint, max }: { parse: (part: string) => T | undefined; hint: string; max: number },
): FieldType {
  return {
    ...type,
    query: (joined, param, faults) => {
      const parts = joined.split(',');
      const values = parts.map(parse);
      const areDifferent = new Set(parts).size === parts.length;
      if (areDifferent && parts.length <= max && values.every((value) => value !== undefined)) return values;
      faults[param] = `must be ${hint}`;
      return undefined;
    },
  };
}
