import {
  choice,
  type FieldType,
  freeform,
  optional,
  required,
  text,
  timestamp,
  withDefault,
} from '../schema/fields.js';
import { fieldFilter } from '../schema/filters.js';
import { defineListed, type ListedType } from '../schema/resource.js';

/** Data streams and status streams (§2.9, contract 8). */
export const streamKinds = ['str', 'sta'] as const;
export type StreamKind = (typeof streamKinds)[number];

const data_limit_bytes = 64 * 1024;

/** `properties`, but 16 levels deep and at most 64 KiB as compact JSON. */
function payload(): FieldType {
  const kind = freeform({ levels: 16 });
  return {
    ...kind,
    body: (value, path, faults) => {
      const given = kind.body(value, path, faults);
      if (!(path in faults) && Buffer.byteLength(JSON.stringify(given)) > data_limit_bytes) {
        faults[path] = 'must not be larger than 64 KiB';
      }
      return given;
    },
  };
}

const decimal = /^[0-9]{1,12}(\.[0-9]{1,9})?$/;

/** When it was measured: epoch seconds, the same as text, or `now`. */
function measuredAt(): FieldType {
  const kind = timestamp();
  return {
    ...kind,
    body: (value, path, faults) => {
      if (value === 'now') return undefined;
      return kind.body(typeof value === 'string' && decimal.test(value) ? Number(value) : value, path, faults);
    },
    schema: { anyOf: [kind.schema, { type: 'string', pattern: decimal.source }, { const: 'now' }] },
    querySchema: kind.schema,
    responseSchema: kind.schema,
  };
}

const hexDigest = /^[0-9a-fA-F]{40}$/;

/** HMAC-SHA1 or SHA-1 of `data` in hexadecimal digits; checked, not stored. */
function digest(): FieldType {
  const check: FieldType['body'] = (value, path, faults) => {
    if (typeof value === 'string' && hexDigest.test(value)) return value.toLowerCase();
    faults[path] = 'must be 40 hexadecimal digits';
    return undefined;
  };
  return {
    body: check,
    stored: 'computed',
    schema: { type: 'string', pattern: hexDigest.source },
    responseSchema: 'never',
  };
}

/** A stream of a device (§4.8). */
export const stream: ListedType = defineListed({
  name: 'stream',
  plural: 'streams',
  fields: {
    _t: withDefault(choice(...streamKinds), 'str', { filter: true }),
    protocol: withDefault(text(50), 'http', { filter: true }),
    at: optional(measuredAt(), { filter: true }),
    data: required(payload()),
    checksum: optional(digest()),
  },
  readOnly: {
    device: required(text(100)),
    owner: required(text(50), { filter: true }),
    updater: required(text(50), { filter: true }),
    created_at: required(timestamp(), { filter: true }),
  },
  // a stream never changes, so it was updated when it was created
  filters: [fieldFilter('updated_at', 'created_at', timestamp())],
  sorts: { device: ['device', 'at'] },
  parentCollections: { device: 'devices' },
  parentField: 'device',
  defaultSort: 'device',
});

/** The streams of the whole account, filtered by device too. */
export const streamOfAccount: ListedType = {
  ...stream,
  filters: [...stream.filters, fieldFilter('device', 'device', text(100))],
};
