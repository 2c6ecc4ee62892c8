import { type Failure, failures } from '../../errors.js';
import { groupBy } from '../../lib/group-by.js';
import { exampleOf, type Field, type Fields, type FieldType, type Schema } from '../fields.js';
import { listEnvelope } from '../list-envelope.js';
import { isListed, isVersionChecked, type Operation, type OperationResult, successes } from '../operation.js';
import type { ListedType, Resource } from '../resource.js';
import { describeClosed, describeObject } from './bodies.js';

/** Response objects by status. */
type Responses = Record<string, Schema>;
type ResultOf<Kind extends OperationResult['kind']> = Extract<OperationResult, { kind: Kind }>;

const text = (description: string, example: string): Schema => ({
  description,
  required: true,
  schema: { type: 'string', examples: [example] },
});

/** The header components of the document. */
export const responseHeaders = {
  'X-Request-Id': text('The id of the request in the logs.', '60453757-ccdb-4dc6-8263-21e254e9a527'),
  ETag: text('For `If-None-Match` and `If-Match`.', '"7"'),
  Location: text('The path of the created object.', '/devices/Pump%40demo/'),
  'Retry-After': {
    description: 'Seconds to wait before the next attempt.',
    schema: { type: 'integer', format: 'int64', examples: [1] },
  },
  'Content-Range': text('The range of bytes and the total number.', 'bytes 0-9/11'),
  'Content-Disposition': text('The name of the file.', 'attachment; filename="pump.json"'),
} as const;

const bytes = { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } };
/** The answer to `If-None-Match`. */
export const notModified = { description: 'Unchanged since the given ETag.', headers: listHeaders('ETag') };

/** The formats of exports (reference/exports.md#formats). */
const rows = {
  'text/csv': { schema: { type: 'string', description: 'A header line, and a line for each object.' } },
  'application/x-ndjson': { schema: { type: 'string', description: 'A JSON object on each line.' } },
};

/** References to `X-Request-Id` and the named headers. */
export function listHeaders(...names: readonly (keyof typeof responseHeaders)[]): Schema {
  return Object.fromEntries(['X-Request-Id', ...names].map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** The responses of an operation that succeeds. */
export function describeSuccess({ result, query }: Operation): Responses {
  const exported = query?.has('format');
  switch (result.kind) {
    case 'status':
      return statusResponse(result);
    case 'object': {
      const { name, versioned } = result.type;
      return shownResponses(`The ${name}.`, shownSchema(result.type), versioned);
    }
    case 'list': {
      const content = { ...jsonAndXml(listSchema(result)), ...(exported && rows) };
      return { 200: { description: `The ${result.type.plural} that match.`, headers: listHeaders(), content } };
    }
    case 'file':
      return fileResponses(result);
    case 'feed':
      return {
        200: {
          description: `Server-sent events (\`text/event-stream\`) whose \`data\` is the ${result.type.name}.`,
          headers: listHeaders(),
          content: { 'text/event-stream': { schema: { type: 'string' } } },
        },
      };
    case 'plain':
      return shownResponses(result.schema.description, result.schema, result.hasEntityTag);
    case 'lines': {
      const content = { 'application/x-ndjson': { schema: result.schema } };
      return { 200: { description: 'One JSON object a line.', headers: listHeaders(), content } };
    }
  }
}

function shownResponses(description: unknown, schema: Schema, hasEntityTag = false): Responses {
  const headers = listHeaders(...(hasEntityTag ? (['ETag'] as const) : []));
  return { 200: { description, headers, content: jsonAndXml(schema) }, ...(hasEntityTag && { 304: notModified }) };
}

function statusResponse(result: ResultOf<'status'>): Responses {
  const { success, message, details, hasLocation, hasEntityTag } = result;
  const { code, status } = successes[success];
  const names = [
    ...(hasLocation ? (['Location'] as const) : []),
    ...(hasEntityTag || isVersionChecked(result) ? (['ETag'] as const) : []),
  ];
  const shown = isListed(details) ? shownSchema(details) : details;
  const content = jsonAndXml(statusSchema(code, shown), { code, message, details: shown ? sampleOf(shown) : {} });
  return { [status]: { description: `${code}: ${message}`, headers: listHeaders(...names), content } };
}

/** A file, and not the object that `Accept` could ask for: generated clients name all types that a response has. */
function fileResponses({ type }: ResultOf<'file'>): Responses {
  const optionalHeaders = {
    ETag: { ...responseHeaders.ETag, required: false },
    'Content-Disposition': { ...responseHeaders['Content-Disposition'], required: false },
  };
  return {
    200: {
      description: `The decoded bytes; the ${type.name} as an object where \`Accept\` names JSON or XML.`,
      headers: { ...listHeaders(), ...optionalHeaders },
      content: bytes,
    },
    206: {
      description: 'The requested range of bytes.',
      headers: listHeaders('ETag', 'Content-Disposition', 'Content-Range'),
      content: bytes,
    },
    304: notModified,
    416: { description: 'The range is beyond the end of the file.', headers: listHeaders('ETag', 'Content-Range') },
  };
}

/** The responses of failures, by status. `legacy.unauthorized` replaces the numbered body of a 401. */
export function describeFailures(
  names: readonly Failure[],
  { legacy, result }: Partial<Pick<Operation, 'legacy' | 'result'>> = {},
): Responses {
  const byStatus = groupBy(names, (name) => failures[name].status);
  const responses = [...byStatus].map(([status, sameStatus]) => {
    const description = sameStatus.map((name) => `${failures[name].code}: ${failures[name].description}.`).join(' ');
    const headers = status === 429 || status === 503 ? listHeaders('Retry-After') : listHeaders();
    if (status === 401 && legacy?.unauthorized !== undefined)
      return [status, { description, headers, content: jsonAndXml(receipt, { response: legacy.unauthorized }) }];
    // beside a file no type is named: clients that ask for JSON because of it would get the object, not the file
    if (result?.kind === 'file') return [status, { description: `${description} The body is a \`Problem\`.`, headers }];
    const examples = Object.fromEntries(sameStatus.map((name) => [name, failureExample(name)]));
    const content = {
      'application/json': { schema: problem, examples },
      'application/xml': { schema: problem },
    };
    return [status, { title: sameStatus.map(capitalize).join('Or'), description, headers, content }];
  });
  return Object.fromEntries(responses);
}

const code: Schema = { type: 'integer', format: 'int64', description: 'Application code.' };
const message: Schema = { type: 'string', description: 'Text that belongs to the code.' };
const anyDetails: Schema = { type: 'object', additionalProperties: true };

/** The body of every error (reference/errors.md#error-body). */
const problem = describeClosed(
  'Problem',
  'An error.',
  {
    code: { ...code, examples: [4003] },
    message: { ...message, examples: ['validation error'] },
    details: {
      ...anyDetails,
      description:
        'By code. 4003, 4004: a message per wrong field or parameter. 4011: what is wrong with the key. 4005: `version`, the stored one (groups and assets: a text), or `matched`, the number of objects that match. 5032: `message`. Else empty.',
      examples: [{ name: 'is required' }],
    },
  },
  { xml: { name: 'response' } },
);

const detailsExamples = {
  faults: { name: 'is required' },
  key: { 'service.apikey': 'is missing' },
  version: { version: 3 },
  message: { message: 'unexpected error' },
} as const;

function failureExample(failure: Failure): Schema {
  const descriptor = failures[failure];
  const details = 'details' in descriptor ? detailsExamples[descriptor.details] : {};
  return {
    summary: capitalize(descriptor.description),
    value: { code: descriptor.code, message: descriptor.message, details },
  };
}

/** The body of a change: `Status`, or a type of its own where `details` hold something. */
function statusSchema(success: number, details: Schema | undefined): Schema {
  const suffix = success === 2001 ? 'Created' : 'Updated';
  return describeClosed(
    details === undefined ? 'Status' : String(details.title) + suffix,
    'The outcome of a change.',
    {
      code: {
        ...code,
        description: '2001: created, linked. 2004: deleted, unlinked. 2005: updated. 2006: would change.',
        examples: [2001],
      },
      message: { ...message, examples: ['Device created'] },
      details: details ?? { ...anyDetails, description: 'Empty.', examples: [{}] },
    },
    { xml: { name: 'response' } },
  );
}

/** The body that firmware of the former platform expects (reference/streams.md#legacy-endpoints). */
export const receipt = describeClosed(
  'Receipt',
  'An answer as devices of the former platform expect it.',
  { response: { type: 'string', description: '`OK`, or what is wrong.', examples: ['OK'] } },
  { xml: { name: 'response' } },
);

const next: Schema = {
  type: 'string',
  description:
    'The value of `after` for the following page, in lists that are read by it and as long as there is more.',
  examples: ['Pump@demo'],
};

function listSchema({ type, metadata }: ResultOf<'list'>): Schema {
  const items = 'fields' in type ? shownSchema(type, 'list') : { ...type.schema, xml: { name: type.name } };
  return describeClosed(
    `${type.title}List`,
    'One page of the objects that match.',
    {
      [listEnvelope.total]: {
        type: 'integer',
        format: 'int64',
        minimum: 0,
        description: 'The number of all that match, whatever `max` and `offset`.',
        examples: [1],
      },
      ...(metadata && { [listEnvelope.metadata]: metadata }),
      [listEnvelope.items]: {
        type: 'array',
        description: 'The page.',
        items,
        examples: [[sampleOf(items)]],
        xml: { wrapped: true },
      },
      [listEnvelope.next]: next,
    },
    { required: [listEnvelope.total, listEnvelope.items], xml: { name: listEnvelope.root } },
  );
}

/** An object as responses show it: optional fields without a value are absent (reference/requests.md#answers). */
function shownSchema(
  listed: ListedType & Partial<Pick<Resource, 'parents'>>,
  place: 'list' | 'object' = 'object',
): Schema {
  const { name, title, readOnly, fields, requested, parents = [] } = listed;
  const omitted = place === 'list' ? listed.omittedFromLists : [];
  const shown: Fields = Object.fromEntries(
    Object.entries({ ...fields, ...readOnly, ...requested }).filter(
      ([key, { type }]) => !omitted.includes(key) && type.responseSchema !== 'never',
    ),
  );
  const isAlwaysPresent = ([key, { presence }]: [string, Field]) =>
    presence !== 'optional' && !(parents.length > 1 && parents.includes(key));
  const examples = Object.entries(shown).filter(([key]) => !parents.slice(1).includes(key));
  return describeObject(shown, ({ type }) => shownValueSchema(type), {
    title: omitted.length === 0 ? title : `${title}Listed`,
    description: `A ${name}, as answers show it.`,
    required: Object.entries(shown)
      .filter(isAlwaysPresent)
      .map(([key]) => key),
    additionalProperties: false,
    examples: [Object.fromEntries(examples.map(([key, { type }]) => [key, exampleOf(type)]))],
    xml: { name },
  });
}

function shownValueSchema({ schema, responseSchema, members }: FieldType): Schema {
  if (typeof responseSchema === 'object') return responseSchema;
  if (members === undefined) return schema;
  return describeObject(members, ({ type }) => shownValueSchema(type), { additionalProperties: false, ...schema });
}

function sampleOf({ examples }: Schema): unknown {
  return Array.isArray(examples) ? examples[0] : undefined;
}

function jsonAndXml(schema: Schema, example?: Schema): Schema {
  return {
    'application/json': { schema, ...(example && { example }) },
    'application/xml': { schema },
  };
}

function capitalize(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
