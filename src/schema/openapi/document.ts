import { type Failure, failures } from '../../errors.js';
import { identifier } from '../fields/text.js';
import type { Schema } from '../fields.js';
import { isScopeSufficient, type Operation, scopes } from '../operation.js';
import { describeParameter } from './bodies.js';
import { hoistComponents } from './components.js';
import { describeFailures, describeSuccess, listHeaders, responseHeaders } from './responses.js';

/** The parts of the document that depend on the installation. */
export interface Installation {
  /** The address that clients use, without a closing slash. */
  url: string;
  base_path: string;
  /** The headers that may carry the API key; the first one is the documented one. */
  key_headers: readonly string[];
  version: string;
}

function pathParameters(path: string): Schema[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: name.endsWith('_id_developer') ? identifier().schema : { type: 'string', minLength: 1 },
  }));
}

function headerParameter(name: string, description: string): Schema {
  return { name, in: 'header', description, schema: { type: 'string' } };
}

function operationParameters(operation: Operation): Schema[] {
  const { path, query = new Map(), requiredQuery = [], result } = operation;
  return [
    ...pathParameters(path),
    ...[...query].map(([name, type]) => ({
      name,
      in: 'query',
      required: requiredQuery.includes(name),
      schema: describeParameter(type),
    })),
    ...((result.kind === 'object' && !result.untagged) || result.kind === 'file'
      ? [headerParameter('If-None-Match', 'An ETag: answers 304 if it is the current one.')]
      : []),
    ...(result.kind === 'file' ? [headerParameter('Range', 'One range of bytes.')] : []),
    ...(operation.failures.includes('conflict')
      ? [headerParameter('If-Match', 'An ETag: answers 4005 if it is not the current one.')]
      : []),
  ];
}

const xmlOrJson =
  'XML if Content-Type is application/xml, text/xml or ends in +xml (a root `stream`, or `streams` with several), otherwise JSON';

/** Every operation can fail in these ways. */
const commonFailures = [
  'unauthorized',
  'forbidden',
  'tooMany',
  'database',
  'exception',
  'overloaded',
] as const satisfies Failure[];

function operationObject(operation: Operation): Schema {
  const { method, path, tag, summary, scope, body, legacy401 } = operation;
  const allowed = scopes.filter((held) => isScopeSufficient(held, scope));
  const parameters = operationParameters(operation);
  return {
    operationId: `${method}${path.replaceAll(/\W+/g, '_')}`.replace(/_$/, ''),
    tags: [tag],
    summary,
    description: `For keys of scope ${allowed.map((held) => `\`${held}\``).join(', ')}.`,
    'x-required-scope': scope,
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: {
        required: body.shape !== 'optional',
        description: `${body.parseXml ? xmlOrJson : 'JSON, whatever Content-Type says'}; at most ${body.limit_bytes / 1024 ** 2} MiB.`,
        content: { 'application/json': { schema: body.schema } },
      },
    }),
    responses: {
      ...describeSuccess(operation),
      ...describeFailures([...operation.failures, ...commonFailures], legacy401),
    },
  };
}

/** A GET at the root of the server, which needs no key. */
function rootPath(operationId: string, summary: string, content: Schema, responses: Schema = {}): Schema {
  return {
    get: {
      operationId,
      tags: ['root'],
      summary,
      security: [],
      responses: {
        200: { description: 'Successful', headers: listHeaders(), content },
        ...describeFailures(['database', 'exception', 'overloaded']),
        ...responses,
      },
    },
  };
}

/** Paths outside {base_url} (reference/configuration.md#health, #api-description). */
function rootPaths(url: string): Record<string, Schema> {
  const json = (schema: Schema): Schema => ({ 'application/json': { schema } });
  const text = (type: string): Schema => ({ [type]: { schema: { type: 'string' } } });
  const state = (word: string) =>
    json({ type: 'object', properties: { status: { enum: [word] } }, required: ['status'] });
  const unready = { description: 'Not ready', headers: listHeaders(), content: json({}) };
  const unchanged = { 304: { description: 'Unchanged since the given ETag.', headers: listHeaders() } };
  const paths = {
    '/healthz': rootPath('healthz', 'Liveness of the process', state('ok')),
    '/readyz': rootPath('readyz', 'Readiness: the database answers', state('ready'), { 503: unready }),
    '/metrics': rootPath('metrics', 'Prometheus metrics', text('text/plain')),
    '/openapi.json': rootPath('openapi', 'This document', json({ type: 'object' }), unchanged),
    '/docs/': rootPath('docs', 'This document as an interactive page', text('text/html'), unchanged),
  };
  return Object.fromEntries(Object.entries(paths).map(([path, item]) => [path, { servers: [{ url }], ...item }]));
}

const introduction = `Every path below {base_url} needs an API key. Paths work with and without the closing slash;
identifiers are \`name@account\`, percent-encoded in paths. Responses are JSON, or XML if \`Accept\` prefers it.
\`HEAD\` works for every \`GET\`. \`OPTIONS\` lists the methods of a path and needs no key. Other methods answer 405
with code ${failures.methodNotAllowed.code}, unknown paths 404 with code ${failures.notFound.code}.

Bodies are read as JSON whatever their \`Content-Type\` says; streams may also be sent as XML. Read-only fields are accepted and ignored. On create
\`null\` counts as absent; on update it unsets an optional field, and absent fields keep their value. Some rules are not
part of the schemas: parents must exist, names must be free, \`_from\` must not be after \`_to\`, and \`geo_lon\`,
\`geo_lat\` and \`geo_distance\` must be given together. Unknown, repeated and empty query parameters answer code
${failures.badParameter.code}.`;

/** The OpenAPI 3.1 document of `operations`. The same input gives the same bytes. */
export function buildOpenApiDocument(operations: readonly Operation[], installation: Installation): Schema {
  const { url, base_path, key_headers, version } = installation;
  const [name = '', ...others] = key_headers;
  const note = others.length > 0 ? ['Other headers than `service.apikey` change how devices are shown.'] : [];
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of operations) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: operationObject(operation) };
  }
  const { node, schemas, responses } = hoistComponents({ ...paths, ...rootPaths(url) });
  return {
    openapi: '3.1.0',
    info: { title: 'Device platform management interface', version, description: introduction },
    servers: [{ url: url + base_path, description: '{base_url}' }],
    security: [{ apikey: [] }, { bearer: [] }],
    tags: [...new Set(operations.map(({ tag }) => tag)), 'root'].map((tag) => ({ name: tag })),
    paths: node,
    components: {
      schemas,
      responses,
      headers: responseHeaders,
      securitySchemes: {
        apikey: {
          type: 'apiKey',
          in: 'header',
          name,
          description: ['The key of a user.', ...others.map((other) => `Also taken from \`${other}\`.`), ...note].join(
            ' ',
          ),
        },
        bearer: { type: 'http', scheme: 'bearer', description: 'The same key as `Authorization: Bearer KEY`.' },
      },
    },
  };
}
