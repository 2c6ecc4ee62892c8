import type { FieldErrors } from '../../errors.js';
import type { Fields, FieldType, Schema, Values } from '../fields.js';

/** An object with declared members. `rule` checks several of them together; `schema` names and describes it. */
export function object(
  members: Fields,
  rule?: (values: Values, path: string, faults: FieldErrors) => void,
  schema: Schema = {},
): FieldType {
  return {
    body: (value, path, faults) => {
      if (!isPlainObject(value)) {
        faults[path] = 'must be an object';
        return undefined;
      }
      const parsed = parseMembers(members, value, `${path}.`, faults);
      rule?.(value, path, faults);
      return parsed;
    },
    stored: 'object',
    members,
    schema,
  };
}

/**
 * Checks `given` against `members` and returns their values with defaults; `null` counts as absent. Unknown, missing
 * and wrong members are added to `faults` under `prefix` and their name.
 */
export function parseMembers(members: Fields, object: Values, prefix: string, faults: FieldErrors): Values {
  const parsed: Values = {};
  for (const key of Object.keys(object)) {
    if (!Object.hasOwn(members, key)) faults[prefix + key] = 'unknown field';
  }
  for (const [key, field] of Object.entries(members)) {
    const value = Object.hasOwn(object, key) ? object[key] : undefined;
    if (value !== undefined && value !== null) parsed[key] = field.type.body(value, prefix + key, faults);
    else if (field.presence === 'required') faults[prefix + key] = 'is required';
    else if (field.presence === 'default') parsed[key] = field.defaultValue;
  }
  return parsed;
}

/** Reports whether a value is an object, and neither null nor an array. */
export function isPlainObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
