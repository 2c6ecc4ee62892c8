import { type Failure, failures } from '../../errors.js';
import type { Field, FieldType, Schema } from '../fields.js';
import { listEnvelope } from '../list-envelope.js';
import type { Operation, OperationResult } from '../operation.js';
import type { ListedType, Resource } from '../resource.js';
import { describeObject } from './bodies.js';

/** Response objects by status. */
type Responses = Record<string, Schema>;
type ResultOf<Kind extends OperationResult['kind']> = Extract<OperationResult, { kind: Kind }>;

/** The header components of the document. */
export const responseHeaders = {
  'X-Request-Id': { description: 'The id of the request in the logs.', required: true, schema: { type: 'string' } },
  ETag: { description: 'For If-None-Match and If-Match.', required: true, schema: { type: 'string' } },
  Location: { description: 'The path of the created object.', required: true, schema: { type: 'string' } },
  'Retry-After': { description: 'Seconds to wait before the next attempt.', schema: { type: 'integer' } },
  'Content-Range': {
    description: 'The range of bytes and the total number.',
    required: true,
    schema: { type: 'string' },
  },
  'Content-Disposition': { description: 'The name of the file.', required: true, schema: { type: 'string' } },
} as const;

const octets = { 'application/octet-stream': { schema: {} } };
const notModified = { description: 'Unchanged since the given ETag.', headers: listHeaders('ETag') };

/** References to `X-Request-Id` and the named headers. */
export function listHeaders(...names: readonly (keyof typeof responseHeaders)[]): Schema {
  return Object.fromEntries(['X-Request-Id', ...names].map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** The responses of an operation that succeeds. */
export function describeSuccess({ result }: Operation): Responses {
  switch (result.kind) {
    case 'status':
      return statusResponse(result);
    case 'object': {
      const content = jsonAndXml(shownSchema(result.type));
      if (result.untagged) return { 200: { description: `The ${result.type.name}`, headers: listHeaders(), content } };
      return {
        200: { description: `The ${result.type.name}`, headers: listHeaders('ETag'), content },
        304: notModified,
      };
    }
    case 'list': {
      const content = jsonAndXml(listSchema(result));
      return { 200: { description: `The ${result.type.plural} that match`, headers: listHeaders(), content } };
    }
    case 'file':
      return fileResponses(result);
    case 'plain': {
      const content = jsonAndXml({ ...result.schema, xml: { name: 'response' } });
      return { 200: { description: 'Done', headers: listHeaders(), content } };
    }
  }
}

function statusResponse({ status, code, message, details, created }: ResultOf<'status'>): Responses {
  const isObject = details !== undefined && 'fields' in details;
  const shown = details === undefined ? emptyObject : isObject ? shownSchema(details as ListedType) : details;
  const names = [
    ...(created ? (['Location'] as const) : []),
    ...(code === 2005 && isObject ? (['ETag'] as const) : []),
  ];
  const body = statusSchema(code, message, { allOf: [shown as Schema], xml: { name: 'details' } });
  const content = jsonAndXml({ title: message.replaceAll(' ', '_'), ...body });
  return { [status]: { description: `${code}: ${message}`, headers: listHeaders(...names), content } };
}

function fileResponses({ type }: ResultOf<'file'>): Responses {
  const optionalHeaders = {
    ETag: { ...responseHeaders.ETag, required: false },
    'Content-Disposition': { ...responseHeaders['Content-Disposition'], required: false },
  };
  return {
    200: {
      description: 'The decoded bytes, or the object where Accept names JSON or XML',
      headers: { ...listHeaders(), ...optionalHeaders },
      content: { ...octets, ...jsonAndXml(shownSchema(type)) },
    },
    206: {
      description: 'The requested range of bytes',
      headers: listHeaders('ETag', 'Content-Disposition', 'Content-Range'),
      content: octets,
    },
    304: notModified,
    416: { description: 'The range is beyond the end of the file', headers: listHeaders('ETag', 'Content-Range') },
  };
}

/** The responses of failures, by status. `legacy401` replaces the numbered body of a 401. */
export function describeFailures(names: readonly Failure[], legacy401?: string): Responses {
  const byStatus = new Map<number, Failure[]>();
  for (const name of names) {
    const { status } = failures[name];
    byStatus.set(status, [...(byStatus.get(status) ?? []), name]);
  }
  const responses = [...byStatus].map(([status, sameStatus]) => {
    const [first, ...others] = sameStatus.map(failureSchema);
    const schema =
      status === 401 && legacy401 !== undefined
        ? constantSchema({ response: legacy401 })
        : others.length === 0
          ? first
          : { oneOf: [first, ...others] };
    const description = sameStatus.map((name) => `${failures[name].code}: ${failures[name].description}`).join('; ');
    const headers = status === 429 || status === 503 ? listHeaders('Retry-After') : listHeaders();
    return [status, { title: sameStatus.join('_'), description, headers, content: jsonAndXml(schema ?? {}) }];
  });
  return Object.fromEntries(responses);
}

const emptyObject = { type: 'object', maxProperties: 0 };

const detailsSchemas = {
  faults: {
    type: 'object',
    minProperties: 1,
    additionalProperties: { type: 'string' },
    description: 'A message per wrong field or parameter; nested fields are named by their path.',
  },
  key: {
    type: 'object',
    properties: { 'service.apikey': { enum: ['is missing', 'is not valid'] } },
    additionalProperties: false,
    description: 'Empty if the storage to list is not linked.',
  },
  version: {
    type: 'object',
    properties: {
      version: { type: ['integer', 'string'], description: 'The stored version; for groups and assets a text.' },
    },
    required: ['version'],
  },
  message: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
} as const;

function failureSchema(failure: Failure): Schema {
  const { code, message, description, ...more } = failures[failure];
  const details = 'details' in more ? detailsSchemas[more.details] : emptyObject;
  return { title: failure, description: toSentence(description), ...statusSchema(code, message, details) };
}

function statusSchema(code: number, message: string, details: Schema): Schema {
  return {
    type: 'object',
    properties: { code: { type: 'integer', const: code }, message: { type: 'string', const: message }, details },
    required: ['code', 'message', 'details'],
    additionalProperties: false,
    xml: { name: 'response' },
  };
}

function constantSchema(value: object): Schema {
  const properties = Object.fromEntries(Object.entries(value).map(([key, constant]) => [key, { const: constant }]));
  return { type: 'object', properties, required: Object.keys(value), xml: { name: 'response' } };
}

function listSchema({ type, metadata }: ResultOf<'list'>): Schema {
  const items =
    'fields' in type ? shownSchema(type, 'list') : { ...type.schema, title: type.name, xml: { name: type.name } };
  return {
    title: `${type.plural}_list`,
    type: 'object',
    properties: {
      [listEnvelope.total]: {
        type: 'integer',
        minimum: 0,
        description: 'The number of matching objects, whatever max and offset.',
      },
      ...(metadata && { [listEnvelope.metadata]: metadata }),
      [listEnvelope.items]: { type: 'array', items, xml: { wrapped: true } },
    },
    required: [listEnvelope.total, listEnvelope.items],
    additionalProperties: false,
    xml: { name: listEnvelope.root },
  };
}

/** An object as responses show it: optional fields without a value are absent (reference/requests.md#answers). */
function shownSchema(
  listed: ListedType & Partial<Pick<Resource, 'parents'>>,
  place: 'list' | 'object' = 'object',
): Schema {
  const { name, readOnly, fields, parents = [] } = listed;
  const omitted = place === 'list' ? listed.omittedFromLists : [];
  const shown = Object.fromEntries(
    Object.entries({ ...fields, ...readOnly }).filter(
      ([key, { type }]) => !omitted.includes(key) && type.responseSchema !== 'never',
    ),
  );
  const isAlwaysPresent = ([key, { presence }]: [string, Field]) =>
    presence !== 'optional' && !(parents.length > 1 && parents.includes(key));
  return describeObject(shown, ({ type }) => shownValueSchema(type), {
    title: omitted.length === 0 ? name : `${name}_listed`,
    required: Object.entries(shown)
      .filter(isAlwaysPresent)
      .map(([key]) => key),
    additionalProperties: false,
    xml: { name },
  });
}

function shownValueSchema({ schema, responseSchema, members }: FieldType): Schema {
  if (typeof responseSchema === 'object') return responseSchema;
  return members === undefined ? schema : describeObject(members, ({ type }) => shownValueSchema(type));
}

function jsonAndXml(schema: Schema): Schema {
  return { 'application/json': { schema }, 'application/xml': { schema } };
}

function toSentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
