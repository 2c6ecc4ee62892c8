import type { FieldErrors } from '../errors.js';
import { formatPointer } from '../schema/data-path.js';
import { list } from '../schema/fields/list.js';
import { flag, integer, number } from '../schema/fields/number.js';
import { isPlainObject, object } from '../schema/fields/object.js';
import { choice, dataPath, parseSinglePath, text } from '../schema/fields/text.js';
import { type FieldType, optional, required } from '../schema/fields.js';

const max_measures = 50;
const max_filterable = 10;

export interface Measure {
  path: string;
  name?: string;
  unit?: string;
  type?: 'number' | 'text' | 'boolean';
  filter?: boolean;
}

const entry = object(
  {
    path: required(dataPath(), { about: 'Path into the `data` of streams.', example: 'bar' }),
    name: optional(text(100), { about: 'What is measured, for people.', example: 'Pressure' }),
    unit: optional(text(50), { about: 'Unit of the values.', example: 'bar' }),
    decimals: optional(integer({ min: 0, max: 10 }), { about: 'Decimals to show.', example: 1 }),
    type: optional(choice('number', 'text', 'boolean'), {
      about: 'Type of the values; values of another type are stored, and match no filter.',
      example: 'number',
    }),
    min: optional(number(), { about: 'Beginning of the scale.', example: 0 }),
    max: optional(number(), { about: 'End of the scale.', example: 10 }),
    filter: optional(flag(), { about: 'Lists of devices can be filtered and sorted by it.', example: true }),
  },
  ({ min, max }, path, faults) => {
    if (typeof min === 'number' && typeof max === 'number' && min > max)
      faults[`${path}.min`] ??= 'must not be above max';
  },
  { title: 'Measure', description: 'A value that devices of the model send.' },
);

/** The measures of a model (reference/resources.md#measures): each path once, whatever its spelling. */
export function measureList(): FieldType {
  const entries = list(entry, { max: max_measures });
  return {
    ...entries,
    body: (value, path, faults) => {
      const parsed = entries.body(value, path, faults);
      if (Array.isArray(value)) checkTogether(value, path, faults);
      return parsed;
    },
  };
}

function checkTogether(measures: readonly unknown[], path: string, faults: FieldErrors): void {
  const seen = new Map<string, number>();
  let filterable = 0;
  for (const [index, measure] of measures.slice(0, max_measures).entries()) {
    if (!isPlainObject(measure)) continue;
    if (measure.filter === true || measure.filter === 1) filterable++;
    const parsed = typeof measure.path === 'string' ? parseSinglePath(measure.path) : undefined;
    if (parsed === undefined) continue;
    const pointer = formatPointer(parsed);
    const earlier = seen.get(pointer);
    if (earlier !== undefined) faults[`${path}.${index}.path`] ??= `is the path of ${path}.${earlier}`;
    else seen.set(pointer, index);
  }
  if (filterable > max_filterable) faults[path] ??= `must have at most ${max_filterable} with filter`;
}

/** The paths of the measures that lists filter by, as JSON Pointers. */
export function filterPathsOf(measures: unknown): string[] {
  if (!Array.isArray(measures)) return [];
  return (measures as readonly Measure[]).flatMap(({ path, filter }) => {
    const parsed = filter === true ? parseSinglePath(path) : undefined;
    return parsed === undefined ? [] : [formatPointer(parsed)];
  });
}
