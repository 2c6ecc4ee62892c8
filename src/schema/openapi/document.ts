import type { Schema } from '../fields.js';
import { body_limit_bytes, failuresOf, isPermitted, type Operation, scopes } from '../operation.js';
import { max_paths, suffixes } from '../path-filters.js';
import { hoistComponents } from './components.js';
import { introduction } from './introduction.js';
import { describeParameters, ifNoneMatch } from './parameters.js';
import { describeFailures, describeSuccess, listHeaders, notModified, responseHeaders } from './responses.js';
import { tags } from './tags.js';

/** The parts of the document that depend on the installation. */
export interface Installation {
  /** The address that clients use, without a closing slash. */
  url: string;
  base_path: string;
  /** The headers that may carry the API key; the first one is the documented one. */
  key_headers: readonly string[];
  version: string;
}

const xmlOrJson =
  'XML if Content-Type is application/xml, text/xml or ends in +xml (a root `stream`, or `streams` with several), otherwise JSON';

function operationObject(operation: Operation): Schema {
  const { operationId, tag, summary, description, scope, isForDevices, limitedKeys, body, upload } = operation;
  const allowed = scopes.filter((held) => isPermitted({ scope: held }, operation)).map((held) => `\`${held}\``);
  const keys = limitedKeys === 'refused' ? 'unlimited keys' : 'keys';
  const parameters = describeParameters(operation);
  const pathFilters = pathFiltersOf(operation);
  return {
    operationId,
    tags: [tag],
    summary,
    description: [
      ...(description ? [description] : []),
      ...(pathFilters.length > 0 ? [describePathFilters(pathFilters)] : []),
      `For ${keys} of scope ${allowed.join(', ')}.`,
    ].join('\n\n'),
    'x-required-scope': scope,
    ...(isForDevices && { 'x-for-devices': true }),
    ...(limitedKeys && { 'x-limited-keys': limitedKeys }),
    ...(parameters.length > 0 && { parameters }),
    ...(pathFilters.length > 0 && { 'x-path-filters': pathFilters }),
    ...(body?.schema !== undefined && { requestBody: requestBody(body.schema, body) }),
    ...(upload !== undefined && { requestBody: uploadBody(upload) }),
    responses: {
      ...describeSuccess(operation),
      ...describeFailures(failuresOf(operation), operation),
    },
  };
}

/** Members whose paths the list is filtered by: OpenAPI cannot describe parameters with free names. */
function pathFiltersOf({ pathFilters, result }: Operation): readonly string[] {
  return pathFilters ?? (result.kind === 'list' && 'pathFilters' in result.type ? result.type.pathFilters : []);
}

function describePathFilters(members: readonly string[]): string {
  const params = members.flatMap((member) => ['', ...suffixes].map((suffix) => `\`${member}.PATH${suffix}\``));
  return `Also takes the parameters ${params.join(', ')}, where \`PATH\` has keys joined by \`.\` or is a JSON Pointer; at most ${max_paths} different paths.`;
}

function requestBody(
  { examples, ...schema }: Schema,
  { limit_bytes = body_limit_bytes, moreExamples = {}, parseXml }: NonNullable<Operation['body']>,
): Schema {
  const [example] = examples as unknown[];
  const others = Object.entries(moreExamples).map(([name, value]) => [name, { value }]);
  return {
    required: true,
    description: `${parseXml ? xmlOrJson : 'JSON, whatever Content-Type says'}; at most ${limit_bytes / 1024 ** 2} MiB.`,
    content: {
      'application/json': {
        schema,
        ...(others.length === 0
          ? { example }
          : { examples: { usual: { value: example }, ...Object.fromEntries(others) } }),
      },
    },
  };
}

function uploadBody(examples: NonNullable<Operation['upload']>): Schema {
  return {
    required: true,
    description: 'Lines of at most 1 MiB, without a limit of the whole.',
    content: Object.fromEntries(
      Object.entries(examples).map(([type, example]) => [
        type,
        { schema: { type: 'string', format: 'binary' }, example },
      ]),
    ),
  };
}

/** A GET at the root of the server, which needs no key. `hasEntityTag`: it compares `If-None-Match`. */
function rootPath(
  operationId: string,
  summary: string,
  content: Schema,
  { responses = {}, hasEntityTag = false }: { responses?: Schema; hasEntityTag?: boolean } = {},
): Schema {
  const headers = listHeaders(...(hasEntityTag ? (['ETag'] as const) : []));
  return {
    get: {
      operationId,
      tags: ['root'],
      summary,
      description: 'Needs no key, and stands at the root of the server, outside `BASE_PATH`.',
      security: [],
      ...(hasEntityTag && { parameters: [ifNoneMatch] }),
      responses: {
        200: { description: 'Success.', headers, content },
        ...(hasEntityTag && { 304: notModified }),
        ...describeFailures(['badParameter', 'database', 'exception', 'overloaded']),
        ...responses,
      },
    },
  };
}

const health: Schema = {
  title: 'Health',
  type: 'object',
  description: 'The state of the service.',
  properties: { status: { type: 'string', description: '`ok`, `ready` or `not ready`.', examples: ['ready'] } },
  required: ['status'],
};

/** Paths outside {base_url} (reference/configuration.md#health, #api-description). */
function rootPaths(url: string): Record<string, Schema> {
  const json = (schema: Schema): Schema => ({ 'application/json': { schema } });
  const text = (type: string): Schema => ({ [type]: { schema: { type: 'string' } } });
  const unready = { description: 'Not ready.', headers: listHeaders(), content: json(health) };
  const anyObject = json({ type: 'object', additionalProperties: true });
  const paths = {
    '/healthz': rootPath('getHealth', 'Liveness of the process', json(health)),
    '/readyz': rootPath('getReadiness', 'Readiness: the database answers', json(health), {
      responses: { 503: unready },
    }),
    '/metrics': rootPath('getMetrics', 'Prometheus metrics', text('text/plain')),
    '/openapi.json': rootPath('getOpenApi', 'This document', anyObject, { hasEntityTag: true }),
    '/docs/': rootPath('getDocs', 'This document as an interactive page', text('text/html'), { hasEntityTag: true }),
  };
  return Object.fromEntries(Object.entries(paths).map(([path, item]) => [path, { servers: [{ url }], ...item }]));
}

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
    info: {
      title: 'Device platform management interface',
      version,
      summary: 'Devices, their hierarchy and their streams',
      description: introduction,
      contact: { name: 'The operator of this service', url: `${url}/docs/` },
      license: { name: 'MIT', url: 'https://spdx.org/licenses/MIT.html' },
    },
    servers: [{ url: url + base_path, description: '{base_url}' }],
    security: [{ apikey: [] }, { bearer: [] }],
    tags,
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
        bearer: {
          type: 'http',
          scheme: 'bearer',
          description: 'The same key as `Authorization: Bearer KEY`, or a token of OIDC_ISSUER.',
        },
      },
    },
  };
}
