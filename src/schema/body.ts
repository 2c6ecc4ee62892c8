import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import { integer } from './fields/number.js';
import { parseMembers } from './fields/object.js';
import type { Values } from './fields.js';
import type { ListedType, Resource } from './resource.js';

/** Checks the body of a create. @returns values with defaults. @throws AppError invalid (4003) with all faults */
export function parseBody(resource: Resource, sent: Values): Values {
  const faults = createFieldErrors();
  const body = resolveAliases(resource, sent, faults, false);
  const values = parseMembers(resource.createFields, withoutReadOnly(resource, body), '', faults);
  checkExactlyOneParent(resource, body, faults, false);
  checkAllOrNone(resource, body, faults);
  checkAtMostOne(resource, body, faults);
  throwIfAny('invalid', faults);
  return values;
}

/** Checks the body of a type that is no resource. @returns values with defaults. @throws AppError invalid (4003) */
export function parseFields(
  listed: ListedType,
  body: Values,
  check?: (values: Values, faults: FieldErrors) => void,
): Values {
  const faults = createFieldErrors();
  const values = parseMembers(listed.fields, withoutReadOnly(listed, body), '', faults);
  check?.(values, faults);
  throwIfAny('invalid', faults);
  return values;
}

/** The body with declared names only, and without blank texts (reference/devices.md#parents). */
function resolveAliases(
  { legacy: { aliases = {}, blankAsNull = [] } }: Resource,
  sent: Values,
  faults: FieldErrors,
  updating: boolean,
): Values {
  if (!blankAsNull.some((key) => sent[key] === '') && !Object.keys(aliases).some((key) => key in sent)) return sent;
  const resolved = Object.assign(Object.create(null) as Values, sent);
  for (const key of blankAsNull) if (resolved[key] === '') resolved[key] = null;
  for (const [alias, field] of Object.entries(aliases)) {
    const { [alias]: other, [field]: value } = resolved;
    delete resolved[alias];
    const isAbsent = (member: unknown) => member === undefined || (member === null && !updating);
    if (isAbsent(other)) continue;
    if (isAbsent(value)) resolved[field] = other;
    else if (value !== other) faults[alias] = `must be the same as ${field}`;
  }
  return resolved;
}

/** Runs work on a body, whose faults name a field as the body does (reference/devices.md#parents). */
export async function withSentNames<Result>(
  { legacy: { aliases } }: Resource,
  sent: Values,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (aliases === undefined || !(error instanceof AppError) || error.failure !== 'invalid') throw error;
    const isBlank = (key: string) => sent[key] === undefined || sent[key] === null || sent[key] === '';
    const details = Object.assign(createFieldErrors(), error.details);
    for (const [alias, field] of Object.entries(aliases)) {
      const isSentAsAlias = alias in sent && isBlank(field) && !(field in sent && isBlank(alias));
      if (!isSentAsAlias || details[field] === undefined) continue;
      details[alias] = details[field];
      delete details[field];
    }
    const { cause, logged } = error;
    throw new AppError('invalid', details, { cause, ...(logged && { logged }) });
  }
}

/** The body without read-only fields, which clients may echo (reference/requests.md#body-fields). */
function withoutReadOnly({ readOnly, requested }: ListedType, body: Values): Values {
  const kept: Values = Object.create(null) as Values;
  for (const key of Object.keys(body)) {
    if (!Object.hasOwn(readOnly, key) && !Object.hasOwn(requested, key)) kept[key] = body[key];
  }
  return kept;
}

/** Requires exactly one of several parents (reference/devices.md#parents); an update may leave all of them out. */
function checkExactlyOneParent({ parents }: Resource, body: Values, faults: FieldErrors, updating: boolean): void {
  if (parents.length < 2) return;
  const present = parents.filter((key) => body[key] !== undefined && body[key] !== null);
  if (present.length === 1 || (updating && present.length === 0)) return;
  for (const key of parents) faults[key] ??= `exactly one of ${parents.join(' and ')} must be given`;
}

function checkAllOrNone({ allOrNone }: Resource, body: Values, faults: FieldErrors): void {
  const missing = allOrNone.filter((key) => body[key] === undefined || body[key] === null);
  if (missing.length === allOrNone.length) return;
  for (const key of missing) faults[key] ??= `${allOrNone.join(' and ')} come together`;
}

function checkAtMostOne({ atMostOne }: Resource, body: Values, faults: FieldErrors): void {
  const present = atMostOne.filter((key) => body[key] !== undefined && body[key] !== null);
  if (present.length > 1)
    for (const key of present) faults[key] ??= `at most one of ${present.join(' and ')} may be set`;
}

/** A validated body of an update. */
export interface UpdateRequest {
  /** Fields to change; `null` unsets an optional field. */
  values: Values;
  /** The version that must be stored. */
  version?: number;
}

const versionType = integer({ min: 0 });

/** Checks the body of an update. @throws AppError invalid (4003) with all faults */
export function parseUpdate(resource: Resource, sent: Values): UpdateRequest {
  const faults = createFieldErrors();
  const body = resolveAliases(resource, sent, faults, true);
  const values: Values = {};
  for (const [key, value] of Object.entries(withoutReadOnly(resource, body))) {
    const field = Object.hasOwn(resource.fields, key) ? resource.fields[key] : undefined;
    if (field === undefined) faults[key] = 'unknown field';
    else if (value !== null) values[key] = field.type.body(value, key, faults);
    else if (field.presence === 'default') values[key] = field.defaultValue;
    else if (field.presence === 'optional' || (resource.parents.length > 1 && resource.parents.includes(key)))
      values[key] = null;
    else faults[key] = 'is required';
  }
  checkExactlyOneParent(resource, body, faults, true);
  checkAtMostOne(resource, body, faults);
  const { version } = body;
  if (version !== undefined && version !== null) versionType.body(version, 'version', faults);
  throwIfAny('invalid', faults);
  return typeof version === 'number' ? { values, version } : { values };
}
