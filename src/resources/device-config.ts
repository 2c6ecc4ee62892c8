import { integer, timestamp } from '../schema/fields/number.js';
import { buildNamePattern, max_identifier_length, name, text, textMatching, withRule } from '../schema/fields/text.js';
import { type FieldType, internal, optional, required } from '../schema/fields.js';
import { auditFields, defineListed } from '../schema/resource.js';

const unsafe = /[/\\\p{Cc}]/u;

/** Names and versions are path segments (reference/device-configs.md#fields). */
function isSegment(text: string): boolean {
  return !unsafe.test(text) && text !== '.' && text !== '..';
}

const max_file_bytes = 16 * 1024 * 1024;

const segmentSchema = { pattern: '^(?!\\.{1,2}$)[^/\\\\\\u0000-\\u001f\\u007f-\\u009f]+$' };

/** Strict base64 (RFC 4648, padded) equals the encoding of its decoded bytes. */
function isBase64(text: string): boolean {
  return Buffer.from(text, 'base64').toString('base64') === text;
}

/** A configuration file of a device (reference/device-configs.md#fields). */
export const deviceconfig = defineListed({
  name: 'deviceconfig',
  plural: 'deviceconfigs',
  title: 'DeviceConfig',
  example: { name: 'pump.json', version: '1.0', file: 'eyJzcGVlZCI6MX0=', date_deployed: 1700000000.5 },
  fields: {
    name: required(segment(), { filter: true, about: 'File name, without `/` and `\\`, and not `.` or `..`.' }),
    version: required(
      textMatching(50, isSegment, 'without / \\ and control characters, and not . or ..', segmentSchema),
      { filter: true, about: 'Your own name of this version; it can be given once for each file name.' },
    ),
    file: required(base64(max_file_bytes), {
      about: 'Content in base64 (RFC 4648, padded, no line breaks), at least one byte.',
    }),
    date_deployed: optional(timestamp(), { filter: true, about: 'When it was or will be deployed.' }),
  },
  readOnly: {
    size: required(integer({ min: 1 }), { about: 'Decoded bytes.', example: 11, unit: 'bytes' }),
    checksum: required(text(40), {
      about: 'SHA-1 of the decoded bytes, hexadecimal.',
      example: '024724fb6573839e07b161afe465d84b7d7e01bd',
    }),
    device: required(text(max_identifier_length), { about: 'Identifier of the device.', example: 'Pump@demo' }),
    // made from the state of the device, so that lists neither sort nor filter by it
    desired: optional(internal('computed', { type: 'boolean' }), {
      about: 'In lists: `true` on the version that the device shall have.',
      example: true,
    }),
    ...auditFields,
  },
  parentCollections: { device: 'devices' },
  parentField: 'device',
  unique: [['parent', 'name', 'version']],
  defaultSort: 'created_at',
  events: { insert: 'created', shown: ['name', 'version'] },
  omittedFromLists: ['file'],
});

/** Base64 text; without `query`, because it is too long to filter or sort by. */
function base64(max: number): FieldType {
  const { body } = textMatching(max, isBase64, 'strict base64');
  const pattern =
    '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)$';
  const schema = { type: 'string', contentEncoding: 'base64', minLength: 4, pattern };
  return { body, stored: 'binary', schema };
}

function segment(): FieldType {
  const type = withRule(name(), (text) => (isSegment(text) ? undefined : 'must not be . or .. or hold / and \\'));
  const schema = { ...type.schema, pattern: buildNamePattern('/\\\\').replace('^', '^(?!\\s*[.]{1,2}\\s*$)') };
  return { ...type, schema };
}
