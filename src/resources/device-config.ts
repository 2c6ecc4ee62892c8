import {
  type FieldType,
  integer,
  max_identifier_length,
  name,
  namePattern,
  optional,
  required,
  text,
  textMatching,
  timestamp,
} from '../schema/fields.js';
import { auditFields, defineListed } from '../schema/resource.js';

const unsafe = /[/\\\p{Cc}]/u;

/** Contract 7: names and versions are path segments. */
function isSegment(given: string): boolean {
  return !unsafe.test(given) && given !== '.' && given !== '..';
}

const max_file_bytes = 16 * 1024 * 1024;

const segmentSchema = { pattern: '^[^/\\\\\\u0000-\\u001f\\u007f-\\u009f]+$', not: { enum: ['.', '..'] } };

/** RFC 4648, padded, at least one byte: exactly what encoding the decoded bytes gives. */
function isBase64(given: string): boolean {
  return Buffer.from(given, 'base64').toString('base64') === given;
}

/** A configuration file of a device, versioned by a text (§2.8, contract 7). */
export const deviceconfig = defineListed({
  name: 'deviceconfig',
  plural: 'deviceconfigs',
  fields: {
    name: required(segment(), { filter: true }),
    version: required(textMatching(50, isSegment, 'without / \\ and control characters', segmentSchema), {
      filter: true,
    }),
    file: required(base64(max_file_bytes)),
    date_deployed: optional(timestamp(), { filter: true }),
  },
  readOnly: {
    size: required(integer({ min: 1 })),
    checksum: required(text(40)),
    device: required(text(max_identifier_length)),
    ...auditFields,
  },
  parentCollections: { device: 'devices' },
  parentField: 'device',
  unique: [['parent', 'name', 'version']],
  defaultSort: 'created_at',
  omittedFromLists: ['file'],
});

/** Too long to filter or sort by, so without the query face. */
function base64(max: number): FieldType {
  const { body } = textMatching(max, isBase64, 'strict base64');
  const pattern =
    '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)$';
  const schema = { type: 'string', contentEncoding: 'base64', minLength: 4, pattern };
  return { body, stored: 'binary', schema };
}

function segment(): FieldType {
  const kind = name();
  const check: typeof kind.body = (value, path, faults) => {
    const parsed = kind.body(value, path, faults);
    if (typeof parsed === 'string' && !isSegment(parsed)) faults[path] = 'must not be . or .. or hold / and \\';
    return parsed;
  };
  const schema = {
    ...kind.schema,
    title: 'file_name',
    pattern: namePattern('/\\\\'),
    not: { pattern: '^\\s*[.]{1,2}\\s*$' },
  };
  return { ...kind, body: check, query: check, schema };
}
