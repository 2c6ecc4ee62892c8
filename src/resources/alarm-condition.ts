import type { FieldErrors } from '../errors.js';
import { integer, number } from '../schema/fields/number.js';
import { isPlainObject, parseMembers } from '../schema/fields/object.js';
import { checkText, choice, dataPath, max_path_length } from '../schema/fields/text.js';
import { type Fields, type FieldType, optional, required, type Schema, type Values } from '../schema/fields.js';
import { statuses } from './device/status.js';

/** Operators that compare numbers, and those that compare texts and booleans too. */
const orderOperators = ['>', '>=', '<', '<='] as const;
const operators = [...orderOperators, '=', '!='] as const;
export type Operator = (typeof operators)[number];

const alarmingStatuses: readonly string[] = statuses.filter((status) => status !== 'ok');
const max_text_length = 1000;
const max_minutes = 525_600;

/** A condition as it is stored: on a value of `data`, on the status of the device, or on the absence of a value. */
export interface StoredCondition {
  path?: string;
  op?: Operator;
  value?: number | string | boolean;
  clear?: number;
  status?: readonly string[];
  absent?: string;
  minutes?: number;
}

const valueMembers: Fields = {
  path: required(dataPath()),
  op: required(choice(...operators)),
  value: required(scalar()),
  clear: optional(number()),
};
const statusMembers: Fields = { status: required(statusList()) };
const absenceMembers: Fields = {
  absent: required(dataPath()),
  minutes: required(integer({ min: 1, max: max_minutes })),
};
const valueCondition = withoutOthers('path', valueMembers);
const statusCondition = withoutOthers('status', statusMembers);
const absenceCondition = withoutOthers('absent', absenceMembers);

/** The members of one kind of condition, which takes no values for those of the others. */
function withoutOthers(kind: string, members: Fields): Fields {
  const other: FieldType = {
    body: (_value, path, faults) => {
      faults[path] = `must not be given with ${kind}`;
    },
    stored: 'object',
    schema: {},
  };
  const all = Object.keys({ ...valueMembers, ...statusMembers, ...absenceMembers });
  return { ...Object.fromEntries(all.map((key) => [key, optional(other)])), ...members };
}

/** A number, a text or a boolean. */
function scalar(): FieldType {
  return {
    body: (value, path, faults) => {
      const fault =
        typeof value === 'string'
          ? checkText(value, 0, max_text_length)
          : typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value))
            ? undefined
            : 'must be a number, a text or a boolean';
      if (fault !== undefined) faults[path] = fault;
      return value;
    },
    stored: 'object',
    schema: {},
  };
}

function statusList(): FieldType {
  return {
    body: (value, path, faults) => {
      const isValid =
        Array.isArray(value) &&
        value.length > 0 &&
        new Set(value).size === value.length &&
        value.every((status) => alarmingStatuses.includes(status));
      if (!isValid) faults[path] = `must be a list of different ones of ${alarmingStatuses.join(', ')}`;
      return value;
    },
    stored: 'object',
    schema: {},
  };
}

/** A condition of an alarm rule (reference/alarms.md#conditions). */
export function alarmCondition(): FieldType {
  return {
    body: (value, path, faults) => {
      if (!isPlainObject(value)) {
        faults[path] = 'must be an object';
        return undefined;
      }
      const isGiven = (key: string) => Object.hasOwn(value, key) && value[key] !== null;
      if (isGiven('status')) return parseMembers(statusCondition, value, `${path}.`, faults);
      if (isGiven('absent')) return parseMembers(absenceCondition, value, `${path}.`, faults);
      const parsed = parseMembers(valueCondition, value, `${path}.`, faults);
      checkTogether(parsed, path, faults);
      return parsed;
    },
    stored: 'object',
    schema: conditionSchema,
  };
}

/** Checks value, operator and `clear` against each other. */
function checkTogether({ op, value, clear }: Values, path: string, faults: FieldErrors): void {
  if (op === undefined) return;
  const isOrder = (orderOperators as readonly unknown[]).includes(op);
  if (isOrder && value !== undefined && typeof value !== 'number')
    faults[`${path}.value`] ??= `must be a number with ${String(op)}`;
  if (clear === undefined) return;
  const isBelow = op === '>' || op === '>=';
  if (!isOrder) faults[`${path}.clear`] ??= `must not be given with ${String(op)}`;
  else if (typeof clear === 'number' && typeof value === 'number' && (isBelow ? clear >= value : clear <= value))
    faults[`${path}.clear`] ??= `must be ${isBelow ? 'less' : 'greater'} than value`;
}

const text = (about: string, example: string, more: Schema = {}): Schema => ({
  type: 'string',
  description: about,
  examples: [example],
  ...more,
});

const pathLengths = { minLength: 1, maxLength: max_path_length };

/** Code generators misread branches, so the schema is flat. */
const conditionSchema: Schema = {
  title: 'AlarmCondition',
  type: 'object',
  description: 'Either `path`, `op`, `value` and perhaps `clear`, or `status`, or `absent` and `minutes`.',
  properties: {
    path: text('Path into the `data` of streams, as in series.', 'bar', pathLengths),
    op: text(`Comparison of the last value with \`value\`: one of ${operators.join(' ')}.`, '>'),
    value: {
      description: 'A number; with `=` and `!=` also a text of at most 1,000 characters or a boolean.',
      maxLength: max_text_length,
      examples: [8],
    },
    clear: {
      type: 'number',
      format: 'double',
      description: 'Value that has to be reached again before the condition ends.',
      examples: [7],
    },
    status: {
      type: 'array',
      items: text('A status of the device.', 'no_data', { enum: alarmingStatuses }),
      minItems: 1,
      maxItems: alarmingStatuses.length,
      description: 'The device is in one of these states.',
      examples: [['no_data', 'disconnected']],
    },
    absent: text('Path that no data stream had for `minutes`.', 'bar', pathLengths),
    minutes: {
      type: 'integer',
      format: 'int64',
      minimum: 1,
      maximum: max_minutes,
      description: 'Minutes since the last data stream with `absent`.',
      'x-unit': 'minutes',
      examples: [30],
    },
  },
  additionalProperties: false,
  examples: [{ path: 'bar', op: '>', value: 8, clear: 7 }],
};
