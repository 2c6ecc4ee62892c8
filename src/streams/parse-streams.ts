import type { Id } from '../db/ids.js';
import { OpaqueJson } from '../db/opaque-json.js';
import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import { max_data_bytes, type StreamKind, stream, uncheckedProtocols } from '../resources/stream.js';
import { isPlainObject, parseMembers } from '../schema/fields/object.js';
import { max_identifier_length, text } from '../schema/fields/text.js';
import { type Fields, required, type Values } from '../schema/fields.js';

const max_entries = 1000;

/** One stream, checked as far as possible without the database. */
export interface Entry {
  device: string;
  _t: StreamKind;
  protocol: string;
  /** Epoch seconds; the time of receipt if undefined. */
  at: number | undefined;
  data: OpaqueJson;
  checksum: string | undefined;
  /** Names the stream in a message that may be repeated. */
  message?: Id;
}

/** The streams of a request. `fieldOf` names a field, or the entry, in errors: `3.data`, `3` for arrays (reference/streams.md#sending). */
export interface ParsedStreams {
  entries: readonly Entry[];
  fieldOf(index: number, field?: string): string;
}

/** Values that the path or topic gives for all entries. */
interface StreamDefaults {
  /** Undefined: each entry names its device. */
  device?: string;
  /** Undefined: each entry may name its kind. */
  _t?: StreamKind;
  protocol?: string;
  /** Streams of other times than their receipt. */
  requiresAt?: true;
}

/** A stream that names its device. */
export const streamWithDevice = {
  ...stream,
  fields: {
    ...stream.fields,
    device: required(text(max_identifier_length), { about: 'Identifier of the device.', example: 'Pump@demo' }),
  } satisfies Fields,
};

/**
 * Checks one stream or an array of 1 to 1000 (reference/streams.md#sending).
 * @throws AppError badJson (4001) for other JSON, invalid (4003) with all faults
 */
export function parseStreams(body: unknown, origin: StreamDefaults): ParsedStreams {
  if (isPlainObject(body)) return parseAll([body], origin, (_index, field = '') => field);
  if (!Array.isArray(body)) throw new AppError('badJson');
  if (body.length < 1 || body.length > max_entries) throw new AppError('invalid', { streams: 'must be 1 to 1000' });
  return parseAll(body, origin, (index, field) => (field === undefined ? String(index) : `${index}.${field}`));
}

function parseAll(items: readonly unknown[], origin: StreamDefaults, fieldOf: ParsedStreams['fieldOf']): ParsedStreams {
  const faults = createFieldErrors();
  const entries = items.map((item, index) => parseOne(item, origin, (field) => fieldOf(index, field), faults));
  throwIfAny('invalid', faults);
  return { entries, fieldOf };
}

function parseOne(
  item: unknown,
  origin: StreamDefaults,
  fieldOf: (field?: string) => string,
  faults: FieldErrors,
): Entry {
  const wrong = createFieldErrors();
  const sent = isPlainObject(item) ? item : {};
  const values = sent === item ? parseFieldsOf(sent, origin, wrong) : {};
  if (sent !== item) faults[fieldOf()] = 'must be an object';
  if (origin._t !== undefined && sent._t != null && sent._t !== origin._t) wrong._t = `must be ${origin._t} here`;
  if (origin.requiresAt && sent.at == null) wrong.at = 'is required';
  const data = new OpaqueJson(values.data ?? null);
  if (data.size > max_data_bytes) wrong.data ??= 'must not be larger than 64 KiB';
  for (const [field, fault] of Object.entries(wrong)) faults[fieldOf(field)] = fault;
  // no spread: V8 copies a second one property by property
  const { device, _t, protocol, at, checksum } = values as Partial<Entry>;
  return {
    device: origin.device ?? device ?? '',
    _t: origin._t ?? _t ?? 'str',
    protocol: (sent.protocol == null ? origin.protocol : undefined) ?? protocol ?? '',
    at,
    data,
    checksum,
  };
}

function parseFieldsOf(item: Values, origin: StreamDefaults, faults: FieldErrors): Values {
  const fields: Fields = origin.device === undefined ? streamWithDevice.fields : stream.fields;
  const isUnchecked = uncheckedProtocols.includes(item.protocol);
  const kept: Values = Object.create(null) as Values;
  for (const key of Object.keys(item)) {
    const isReadOnly = Object.hasOwn(stream.readOnly, key) && !Object.hasOwn(fields, key);
    if (!isReadOnly && !(isUnchecked && key === 'checksum')) kept[key] = item[key];
  }
  return parseMembers(fields, kept, '', faults);
}
