import type { z } from 'zod';
import type { FieldType } from '../fields.js';

/** Checks values with a zod schema; reports the message of its first issue. */
export function checkWith(schema: z.ZodType): FieldType['body'] {
  return (value, path, faults) => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    faults[path] = result.error.issues[0]?.message ?? 'is not valid';
    return undefined;
  };
}
