import { parseTime } from '../lib/rfc3339.js';
import { freeform } from '../schema/fields/freeform.js';
import { notTime, recordedTime, timestamp } from '../schema/fields/number.js';
import { choice, identifierText, max_identifier_length, text } from '../schema/fields/text.js';
import {
  computed,
  type FieldType,
  internal,
  optional,
  required,
  withDefault,
  withDocumentation,
} from '../schema/fields.js';
import { defineFilter, type Filter } from '../schema/filters.js';
import type { ComputedMembers } from '../schema/projection.js';
import { defineListed, type ListedType } from '../schema/resource.js';
import { buildMinNumber, readReceivedMs, writeStreamId } from './stream-key.js';

/** Data streams and status streams (reference/streams.md#fields). */
const streamKinds = ['str', 'sta'] as const;
export type StreamKind = (typeof streamKinds)[number];

/** Bytes of the `data` of a stream as compact JSON. */
export const max_data_bytes = 64 * 1024;

const decimal = /^[0-9]{1,12}(\.[0-9]{1,9})?$/;

/** Time of measurement: epoch seconds as a number or text, `now`, or RFC 3339. */
function measuredAt(): FieldType {
  const type = timestamp();
  return {
    ...type,
    body: (value, path, faults) => {
      if (value === 'now') return undefined;
      const isText = typeof value === 'string';
      const seconds = isText && (decimal.test(value) ? Number(value) : parseTime(value));
      const time = type.body(isText ? seconds : value, path, faults);
      if (path in faults) faults[path] = notTime;
      return time;
    },
    schema: {
      ...type.schema,
      description: `${type.schema.description} Also taken as text, as RFC 3339 with an offset, or \`now\`.`,
    },
  };
}

/** Protocols of the former platform whose checksums are ignored (reference/streams.md#checksum). */
export const uncheckedProtocols: readonly unknown[] = ['v1', 'v2'];

const hexDigest = /^(?:[0-9a-fA-F]{40})?$/;

/** The checksum of `data`; checked, not stored. A blank one counts as not given (reference/streams.md#checksum). */
function digest(): FieldType {
  const check: FieldType['body'] = (value, path, faults) => {
    if (value === '') return undefined;
    if (typeof value === 'string' && hexDigest.test(value)) return value.toLowerCase();
    faults[path] = 'must be 40 hexadecimal digits';
    return undefined;
  };
  return {
    body: check,
    stored: 'computed',
    schema: {
      type: 'string',
      pattern: hexDigest.source,
      description: 'Digest of `data` in 40 hexadecimal digits, or blank. Ignored with protocol `v1` or `v2`.',
    },
    responseSchema: 'never',
  };
}

const deviceDocs = { about: 'Identifier of the device.', example: 'Pump@demo', references: 'devices' };

/** The identifier of a stream (reference/streams.md#stream-identifiers): computed, so neither sorted nor filtered by. */
export const streamIdentity = required(internal('computed', { type: 'string', pattern: '^[0-9a-f]{64}@' }), {
  about: 'Identifier of the stream.',
  example: `${'01'.repeat(32)}@demo`,
});

/** Bytes of BSON before a value: length and subtype of an id, length of a text, which ends with NUL. */
const [id_header_bytes, text_header_bytes] = [5, 4];
/** Reused for each stream: written and read within one synchronous call. */
const identifier = Buffer.alloc(256);
const clusteredBy = ['account', 'device', 'at', 'n'] as const;
const [account, device, at, n] = [0, 1, 2, 3];

/** Members that come from a stream's key and owner (docs/decisions/0024-streams-clustered-by-device.md). */
const computedMembers: ComputedMembers = {
  from: new Set(['_id', 'parent', 'owner']),
  print(stored, out) {
    const { source } = stored;
    const positions = {
      parent: stored.start('parent') + id_header_bytes,
      at: stored.start('_id', at),
      n: stored.start('_id', n),
      account: stored.start('_id', account) + text_header_bytes,
    };
    stored.show('device', out, '_id', device);
    stored.show('at', out, '_id', at);
    stored.show('owner', out, 'owner');
    stored.show('updater', out, 'owner');
    out.member('created_at', Math.floor(readReceivedMs(source, positions.n) / 1000));
    out.ascii('id_developer', identifier, writeStreamId(identifier, source, positions));
  },
};

/** Filters by the time of receipt, which the number of a stream says in milliseconds. */
function defineReceiptFilter(param: string, about: string): Filter {
  const filter = defineFilter(param, '_id.n', withDocumentation(recordedTime(), { about }));
  return {
    ...filter,
    conditions(values) {
      const { $eq, $gte = $eq, $lte = $eq } = filter.conditions(values, 0)['_id.n'] as { [operator: string]: number };
      const from = Math.ceil(Math.min(Math.max($eq ?? 0, $gte ?? 0), max_time));
      const to = Math.floor(Math.min($eq ?? max_time, $lte ?? max_time));
      return { '_id.n': { $gte: buildMinNumber(from * 1000), $lt: buildMinNumber((to + 1) * 1000) } };
    },
  };
}

/** Epoch seconds that the number of a stream can say. */
const max_time = 8e9;

/** A stream of a device (reference/streams.md#fields). */
export const stream: ListedType = defineListed({
  name: 'stream',
  plural: 'streams',
  example: { _t: 'str', protocol: 'http', at: 1700000000.25, data: { bar: 2.4, valve: 'open' } },
  fields: {
    _t: withDefault(choice(...streamKinds), 'str', {
      filter: true,
      about: '`str`: data stream; `sta`: status stream.',
    }),
    protocol: withDefault(text(50), 'http', { filter: true, about: 'Any text.' }),
    at: optional(measuredAt(), { filter: true, about: 'When it was measured; absent: the time of receipt.' }),
    data: required(freeform({ levels: 16 }), { about: 'The measurements, at most 64 KiB as compact JSON.' }),
    checksum: optional(digest(), {
      about:
        'Hexadecimal SHA-1 of the canonical JSON (RFC 8785) of `data`; HMAC-SHA1 if the device has a `checksum`, its key.',
      example: '0c0026a39f25a1ceeb4882adabe65c3d8a13391e',
    }),
  },
  readOnly: {
    id_developer: streamIdentity,
    device: required(identifierText(), deviceDocs),
    owner: required(text(50), {
      filter: true,
      about: 'The user of the key; over MQTT the owner of the device.',
      example: 'admin',
    }),
    updater: required(text(50), { filter: true, about: 'The same as `owner`.', example: 'admin' }),
    created_at: required(computed(recordedTime()), { about: 'Time of receipt.' }),
  },
  computed: computedMembers,
  // streams never change, so `updated_at` equals `created_at`
  filters: [
    defineReceiptFilter('created_at', 'Time of receipt.'),
    defineReceiptFilter('updated_at', 'The same as `created_at`.'),
  ],
  clusteredBy,
  storedPaths: { at: '_id.at', device: '_id.device', updater: 'owner' },
  sorts: { device: ['_id.device', '_id.at'], created_at: ['_id.n'] },
  parentCollections: { device: 'devices' },
  parentField: 'device',
  defaultSort: 'device',
  events: { subject: 'streams', more: ['deleted'] },
});

/** The streams of an account, which can also be filtered by device. */
export const streamOfAccount: ListedType = {
  ...stream,
  filters: [
    ...stream.filters,
    defineFilter('device', '_id.device', withDocumentation(text(max_identifier_length), deviceDocs)),
  ],
};
