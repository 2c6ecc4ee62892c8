import { isDeepStrictEqual } from 'node:util';
import { type Failure, failures } from '../errors.js';
import { type Field, type Fields, type FieldType, identifier, isPlainObject, type Schema } from './fields.js';
import { type Operation, permits, scopes } from './operation.js';
import type { ListedType, Resource } from './resource.js';

type Part = Readonly<Record<string, unknown>>;

/** What the document needs to know of this installation. */
export interface Installation {
  /** The address that clients see, without a closing slash. */
  url: string;
  base_path: string;
  /** The headers that may carry the API key; the first one is the documented one. */
  key_headers: readonly string[];
  version: string;
}

type Writable = Pick<ListedType, 'name' | 'fields' | 'readOnly'> & Partial<Pick<Resource, 'parents' | 'allOrNone'>>;

/** The body of a create or an update; what is read-only is accepted and ignored (contract 5). */
export function bodySchema(listed: Writable, updating: boolean): Schema {
  const { name, fields, readOnly, parents = [], allOrNone: together = [] } = listed;
  const alternatives = parents.length > 1 ? parents : [];
  const ignored = Object.keys(readOnly).filter((key) => !(key in fields));
  const isRequired = (key: string) => fields[key]?.presence === 'required' && !alternatives.includes(key);
  const properties = Object.entries(fields).map(([key, { type, defaultValue }]) => {
    const schema = isRequired(key) ? bodyOf(type) : nullable(bodyOf(type));
    return [key, updating || defaultValue === undefined ? schema : { ...schema, default: defaultValue }];
  });
  const rules = [
    ...(alternatives.length > 0 ? [{ anyOf: alternatives.map((key) => onlyParent(key, alternatives, updating)) }] : []),
    ...(together.length > 0 && !updating ? [allOrNone(together, fields)] : []),
  ];
  return {
    title: `${name}_${updating ? 'update' : 'create'}`,
    type: 'object',
    properties: {
      ...Object.fromEntries(properties),
      ...Object.fromEntries(ignored.map((key) => [key, updating && key === 'version' ? expected : { readOnly: true }])),
    },
    ...(!updating && { required: Object.keys(fields).filter(isRequired) }),
    additionalProperties: false,
    ...(rules.length > 0 && { allOf: rules }),
  };
}

/** Query parameters that stand in a body, as JSON values or as the text that a query has (contract 8). */
export function filterSchema(query: ReadonlyMap<string, FieldType>): Schema {
  const properties = [...query].map(([name, kind]) => {
    const asked = askedOf(kind);
    const text =
      asked.type === 'string' ? { type: ['number', 'boolean'] } : { type: 'string', pattern: '^[1-9][0-9]{0,2}$' };
    return [name, { anyOf: [asked, ...('enum' in asked ? [] : [text]), nothing] }];
  });
  return { type: 'object', properties: Object.fromEntries(properties), additionalProperties: false };
}

const nothing = { type: 'null' };
const expected = { type: ['integer', 'null'], minimum: 0, description: 'The version that must be stored.' };

/** `null` counts as absent on create and takes an optional field away on update (contract 5). */
function nullable(schema: Schema): Schema {
  if (typeof schema.type !== 'string' || 'enum' in schema || 'title' in schema) return { anyOf: [schema, nothing] };
  return { ...schema, type: [schema.type, 'null'] };
}

function onlyParent(given: string, parents: readonly string[], updating: boolean): Schema {
  const others = parents.filter((key) => key !== given).map((key) => [key, nothing]);
  if (updating) return { properties: Object.fromEntries(others) };
  return { required: [given], properties: { [given]: { type: 'string' }, ...Object.fromEntries(others) } };
}

function allOrNone(keys: readonly string[], fields: Fields): Schema {
  const types = keys.map((key) => [key, { type: fields[key]?.type.schema.type }]);
  return {
    anyOf: [
      { required: keys, properties: Object.fromEntries(types) },
      { properties: Object.fromEntries(keys.map((key) => [key, nothing])) },
    ],
  };
}

function bodyOf({ schema, members }: FieldType): Schema {
  if (members === undefined) return schema;
  return objectOf(members, ({ type, presence }) => (presence === 'required' ? bodyOf(type) : nullable(bodyOf(type))), {
    additionalProperties: false,
    ...schema,
  });
}

function objectOf(members: Fields, toSchema: (field: Field) => Schema, more: Schema = {}): Schema {
  return {
    type: 'object',
    properties: Object.fromEntries(Object.entries(members).map(([key, field]) => [key, toSchema(field)])),
    required: Object.keys(members).filter((key) => members[key]?.presence === 'required'),
    ...more,
  };
}

function shownOf({ schema, responseSchema, members }: FieldType): Schema {
  if (typeof responseSchema === 'object') return responseSchema;
  return members === undefined ? schema : objectOf(members, ({ type }) => shownOf(type));
}

/** An object as answers show it: optional fields that were never given are absent (contract 4). */
function shownSchema(
  listed: ListedType & Partial<Pick<Resource, 'parents'>>,
  place: 'list' | 'object' = 'object',
): Schema {
  const { name, readOnly, fields, parents = [] } = listed;
  const unlisted = place === 'list' ? listed.omittedFromLists : [];
  const shown = Object.fromEntries(
    Object.entries({ ...fields, ...readOnly }).filter(
      ([key, { type }]) => !unlisted.includes(key) && type.responseSchema !== 'never',
    ),
  );
  const always = ([key, { presence }]: [string, Field]) =>
    presence !== 'optional' && !(parents.length > 1 && parents.includes(key));
  return objectOf(shown, ({ type: kind }) => shownOf(kind), {
    title: unlisted.length === 0 ? name : `${name}_listed`,
    required: Object.entries(shown)
      .filter(always)
      .map(([key]) => key),
    additionalProperties: false,
    xml: { name },
  });
}

const empty = { type: 'object', maxProperties: 0 };

const detailsOf = {
  faults: {
    type: 'object',
    minProperties: 1,
    additionalProperties: { type: 'string' },
    description: 'What is wrong, by field or parameter; nested fields are named by their path.',
  },
  version: {
    type: 'object',
    properties: {
      version: { type: ['integer', 'string'], description: 'The stored one; for groups and assets a text.' },
    },
    required: ['version'],
  },
  message: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
} as const;

function statusSchema(code: number, message: string, details: Schema): Schema {
  return {
    type: 'object',
    properties: { code: { type: 'integer', const: code }, message: { type: 'string', const: message }, details },
    required: ['code', 'message', 'details'],
    additionalProperties: false,
    xml: { name: 'response' },
  };
}

function failureSchema(failure: Failure): Schema {
  const { code, message, description, ...more } = failures[failure];
  const details = 'details' in more ? detailsOf[more.details] : empty;
  return { title: failure, description: sentence(description), ...statusSchema(code, message, details) };
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

const headers = {
  'X-Request-Id': { description: 'Names the request in the logs.', required: true, schema: { type: 'string' } },
  ETag: { description: 'For If-None-Match and If-Match.', required: true, schema: { type: 'string' } },
  Location: { description: 'The path of what was created.', required: true, schema: { type: 'string' } },
  'Retry-After': { description: 'Seconds after which to come back.', schema: { type: 'integer' } },
  'Content-Range': { description: 'Which bytes of how many.', required: true, schema: { type: 'string' } },
  'Content-Disposition': { description: 'The name of the file.', required: true, schema: { type: 'string' } },
} as const;

function headersNamed(...names: readonly (keyof typeof headers)[]): Part {
  return Object.fromEntries(['X-Request-Id', ...names].map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

function both(schema: Schema): Part {
  return { 'application/json': { schema }, 'application/xml': { schema } };
}

/** The answers to what goes wrong, by status. */
function failureResponses(names: readonly Failure[], unauthorized?: string): Record<string, Part> {
  const byStatus = new Map<number, Failure[]>();
  for (const name of names) {
    const { status } = failures[name];
    byStatus.set(status, [...(byStatus.get(status) ?? []), name]);
  }
  const responses = [...byStatus].map(([status, together]) => {
    const [first, ...others] = together.map(failureSchema);
    const special = status === 401 && unauthorized !== undefined;
    const schema = special
      ? constantSchema({ response: unauthorized })
      : others.length === 0
        ? first
        : { oneOf: [first, ...others] };
    const description = together.map((name) => `${failures[name].code}: ${failures[name].description}`).join('; ');
    const retry = status === 429 || status === 503;
    const names = headersNamed(...(retry ? (['Retry-After'] as const) : []));
    return [status, { title: together.join('_'), description, headers: names, content: both(schema ?? {}) }];
  });
  return Object.fromEntries(responses);
}

function constantSchema(value: object): Schema {
  const properties = Object.fromEntries(Object.entries(value).map(([key, constant]) => [key, { const: constant }]));
  return { type: 'object', properties, required: Object.keys(value), xml: { name: 'response' } };
}

const notModified = { description: 'The client has it already.', headers: headersNamed('ETag') };
const octets = { 'application/octet-stream': { schema: {} } };

/** The answers of an operation that goes well, by status. */
function successResponses({ result }: Operation): Record<string, Part> {
  switch (result.kind) {
    case 'status': {
      const { status, code, message, details, created } = result;
      const shown = details === undefined ? empty : 'fields' in details ? shownSchema(details as ListedType) : details;
      const tagged = code === 2005 && details !== undefined && 'fields' in details;
      const names = [...(created ? (['Location'] as const) : []), ...(tagged ? (['ETag'] as const) : [])];
      const body = statusSchema(code, message, { allOf: [shown], xml: { name: 'details' } });
      const schema = { title: message.replaceAll(' ', '_'), ...body };
      return {
        [status]: { description: `${code}: ${message}`, headers: headersNamed(...names), content: both(schema) },
      };
    }
    case 'object':
      return {
        200: {
          description: `The ${result.type.name}`,
          headers: headersNamed('ETag'),
          content: both(shownSchema(result.type)),
        },
        304: notModified,
      };
    case 'list':
      return {
        200: {
          description: `The ${result.type.plural} that match`,
          headers: headersNamed(),
          content: both(listSchema(result)),
        },
      };
    case 'file': {
      const whole = { ...octets, ...both(shownSchema(result.type)) };
      const file = headersNamed('ETag', 'Content-Disposition');
      const ofBytes = {
        ETag: { ...headers.ETag, required: false },
        'Content-Disposition': { ...headers['Content-Disposition'], required: false },
      };
      return {
        200: {
          description: 'The decoded bytes, or the object where Accept names JSON or XML',
          headers: { ...headersNamed(), ...ofBytes },
          content: whole,
        },
        206: {
          description: 'The bytes that Range asks for',
          headers: { ...file, ...headersNamed('Content-Range') },
          content: octets,
        },
        304: notModified,
        416: { description: 'No such bytes', headers: headersNamed('ETag', 'Content-Range') },
      };
    }
    case 'plain':
      return {
        200: {
          description: 'Done',
          headers: headersNamed(),
          content: both({ ...result.schema, xml: { name: 'response' } }),
        },
      };
  }
}

function listSchema({ type, extra = {} }: Extract<Operation['result'], { kind: 'list' }>): Schema {
  const items =
    'fields' in type ? shownSchema(type, 'list') : { ...type.schema, title: type.name, xml: { name: type.name } };
  return {
    title: `${type.plural}_list`,
    type: 'object',
    properties: {
      total_documents: { type: 'integer', minimum: 0, description: 'How many match, whatever max and offset.' },
      ...extra,
      result: { type: 'array', items, xml: { wrapped: true } },
    },
    required: ['total_documents', 'result'],
    additionalProperties: false,
    xml: { name: 'response' },
  };
}

function pathParameters(path: string): Part[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: name.endsWith('_id_developer') ? identifier().schema : { type: 'string', minLength: 1 },
  }));
}

/** A parameter that is given is not empty (contract 4). */
function askedOf({ querySchema, schema }: FieldType): Schema {
  return querySchema ?? (schema.minLength === 0 ? { ...schema, minLength: 1 } : schema);
}

function parametersOf({ path, query = new Map(), requiredQuery = [], result, failures: answered }: Operation): Part[] {
  const header = (name: string, description: string) => ({
    name,
    in: 'header',
    description,
    schema: { type: 'string' },
  });
  return [
    ...pathParameters(path),
    ...[...query].map(([name, kind]) => ({
      name,
      in: 'query',
      required: requiredQuery.includes(name),
      schema: askedOf(kind),
    })),
    ...(result.kind === 'object' || result.kind === 'file'
      ? [header('If-None-Match', 'An ETag: 304 if it is still right.')]
      : []),
    ...(result.kind === 'file' ? [header('Range', 'One range of bytes.')] : []),
    ...(answered.includes('conflict') ? [header('If-Match', 'An ETag: 4005 if it is no longer right.')] : []),
  ];
}

function operationOf(operation: Operation): Part {
  const { method, path, tag, summary, scope, body, legacy401 } = operation;
  const may = scopes.filter((held) => permits(held, scope));
  const always: Failure[] = ['unauthorized', 'forbidden', 'tooMany', 'database', 'exception', 'overloaded'];
  const parameters = parametersOf(operation);
  return {
    operationId: `${method}${path.replaceAll(/\W+/g, '_')}`.replace(/_$/, ''),
    tags: [tag],
    summary,
    description: `For keys of scope ${may.map((held) => `\`${held}\``).join(', ')}.`,
    'x-required-scope': scope,
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: {
        required: body.shape !== 'optional',
        description: `JSON, whatever Content-Type says; at most ${body.limit_bytes / 1024 ** 2} MiB.`,
        content: { 'application/json': { schema: body.schema } },
      },
    }),
    responses: {
      ...successResponses(operation),
      ...failureResponses([...operation.failures, ...always], legacy401),
    },
  };
}

/** What stands outside {base_url} and needs no key (contract 1). */
function rootPaths(url: string): Record<string, Part> {
  const state = (...words: readonly string[]): Schema => ({
    type: 'object',
    properties: { status: { enum: words } },
    required: ['status'],
  });
  const json = (schema: Schema): Part => ({ 'application/json': { schema } });
  const text = (type: string): Part => ({ [type]: { schema: { type: 'string' } } });
  const root = (operationId: string, summary: string, content: Part, more: Part = {}): Part => ({
    servers: [{ url }],
    get: {
      operationId,
      tags: ['root'],
      summary,
      security: [],
      responses: {
        200: { description: 'It is', headers: headersNamed(), content },
        ...failureResponses(['database', 'exception', 'overloaded']),
        ...more,
      },
    },
  });
  const unready = { description: 'Not yet, or not now', headers: headersNamed(), content: json({}) };
  const unchanged = { 304: { description: 'The client has it already.', headers: headersNamed() } };
  return {
    '/healthz': root('healthz', 'Whether the process is alive', json(state('ok'))),
    '/readyz': root('readyz', 'Whether the database answers', json(state('ready')), { 503: unready }),
    '/metrics': root('metrics', 'Prometheus metrics', text('text/plain')),
    '/openapi.json': root('openapi', 'This document', json({ type: 'object' }), unchanged),
    '/docs/': root('docs', 'This document as a page to read and try', text('text/html'), unchanged),
  };
}

const introduction = `Everything below {base_url} needs an API key. Paths work with and without the closing slash;
identifiers are \`name@account\`, percent-encoded in paths. Answers are JSON, or XML where \`Accept\` prefers it.
\`HEAD\` works where \`GET\` does, \`OPTIONS\` tells the methods of a path and needs no key, other methods answer 405
with code ${failures.methodNotAllowed.code}, unknown paths 404 with code ${failures.notFound.code}.

Bodies are read as JSON whatever their \`Content-Type\` says. What only the service writes is accepted and ignored. On
create \`null\` counts as absent; on update it takes an optional field away, and what is not given stays. Parents must
exist, names must be free, \`_from\` must not be after \`_to\`, and \`geo_lon\`, \`geo_lat\` and \`geo_distance\` come together:
no schema can say that. Unknown, repeated and empty query parameters are refused with code ${failures.badParameter.code}.`;

/**
 * The OpenAPI 3.1 document of `operations`, made from the declarations that validate and serve them. The same input
 * gives the same bytes.
 */
export function openApiDocument(operations: readonly Operation[], installation: Installation): Part {
  const { url, base_path, key_headers, version } = installation;
  const [name = '', ...others] = key_headers;
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of operations) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: operationOf(operation) };
  }
  const components: Components = { schemas: {}, responses: {} };
  const hoisted = hoist({ ...paths, ...rootPaths(url) }, components);
  return {
    openapi: '3.1.0',
    info: { title: 'Device platform management interface', version, description: introduction },
    servers: [{ url: url + base_path, description: '{base_url}' }],
    security: [{ apikey: [] }],
    tags: [...new Set(operations.map(({ tag }) => tag)), 'root'].map((tag) => ({ name: tag })),
    paths: hoisted,
    components: {
      schemas: sorted(components.schemas),
      responses: sorted(components.responses),
      headers,
      securitySchemes: {
        apikey: {
          type: 'apiKey',
          in: 'header',
          name,
          description: ['The key of a user.', ...others.map((other) => `Also taken from \`${other}\`.`)].join(' '),
        },
      },
    },
  };
}

interface Components {
  schemas: Record<string, unknown>;
  responses: Record<string, unknown>;
}

/**
 * Moves schemas and responses with a title to where they are found by it. A second, different one of a title stays.
 * @param known what was seen before: declarations share their schemas, and some of them are large
 */
function hoist(node: unknown, components: Components, known = new Map<unknown, unknown>()): unknown {
  if (Array.isArray(node)) return node.map((one) => hoist(one, components, known));
  if (!isPlainObject(node)) return node;
  const hoisted = known.get(node) ?? hoistObject(node, components, known);
  known.set(node, hoisted);
  return hoisted;
}

function hoistObject(node: Part, components: Components, known: Map<unknown, unknown>): unknown {
  const whole = Object.fromEntries(Object.entries(node).map(([key, inner]) => [key, hoist(inner, components, known)]));
  if (typeof whole.title !== 'string') return whole;
  const { title, default: fallback, ...part } = whole;
  const place = 'content' in part ? 'responses' : 'schemas';
  components[place][title] ??= part;
  if (!isDeepStrictEqual(components[place][title], part)) return place === 'schemas' ? whole : part;
  return { $ref: `#/components/${place}/${title}`, ...(fallback !== undefined && { default: fallback }) };
}

function sorted(parts: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(parts).sort(([one], [other]) => (one < other ? -1 : 1)));
}
