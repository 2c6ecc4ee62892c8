import { RequestError } from './errors.js';
import { pageSettings } from './page-settings.js';

/** The part of JSON Schema that the description of the interface uses. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: readonly (string | number)[];
  format?: string;
  description?: string;
  properties?: Readonly<Record<string, Schema>>;
  required?: readonly string[];
  items?: Schema;
  oneOf?: readonly Schema[];
  anyOf?: readonly Schema[];
  additionalProperties?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  examples?: readonly unknown[];
  default?: unknown;
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  description?: string;
  schema: Schema;
}

interface Operation {
  operationId: string;
  summary: string;
  description?: string;
  parameters?: readonly Parameter[];
  'x-required-scope'?: Scope;
  requestBody?: { content: Readonly<Record<string, { schema: Schema }>> };
  responses: Readonly<Record<string, { content?: Readonly<Record<string, { schema: Schema }>> }>>;
}

export interface InterfaceDocument {
  info: { title: string; version: string };
  servers: readonly { url: string }[];
  paths: Readonly<Record<string, Readonly<Record<string, Operation | undefined>>>>;
  components: { schemas: Readonly<Record<string, Schema>> };
}

/** Smallest first: each scope may do what the ones before it may, `stream` aside, which reads nothing. */
export const scopes = ['stream', 'read', 'write', 'admin'] as const;
export type Scope = (typeof scopes)[number];

/** Reads `/openapi.json`, and learns from it the path of {base_url}. */
export async function loadDocument(signal: AbortSignal): Promise<InterfaceDocument> {
  const response = await fetch(`${pageSettings.prefix}/openapi.json`, { signal }).catch(() => undefined);
  if (response?.ok !== true) throw new RequestError(response?.status ?? 0, 0, 'no description of the interface');
  const document = (await response.json()) as InterfaceDocument;
  const [server] = document.servers;
  if (server !== undefined) pageSettings.base = new URL(server.url, location.href).pathname.replace(/\/$/, '');
  return document;
}

/** Follows references to `components.schemas`. */
export function resolve(document: InterfaceDocument, schema: Schema | undefined): Schema {
  const name = schema?.$ref?.split('/').at(-1);
  if (name === undefined) return schema ?? {};
  return { ...document.components.schemas[name], ...(schema?.description && { description: schema.description }) };
}

/** Returns the type of a schema's values, `null` aside. */
export function typeOf(schema: Schema): string | undefined {
  return Array.isArray(schema.type) ? schema.type.find((type) => type !== 'null') : schema.type;
}

/** The schema of the body that an operation takes, or undefined if there is none. */
export function bodySchemaOf(document: InterfaceDocument, method: string, path: string): Schema | undefined {
  const content = document.paths[path]?.[method]?.requestBody?.content['application/json'];
  return content && resolve(document, content.schema);
}

/** The schema of one entry of a list. */
export function entrySchemaOf(document: InterfaceDocument, path: string): Schema {
  const list = resolve(document, document.paths[path]?.get?.responses['200']?.content?.['application/json']?.schema);
  return resolve(document, list.properties?.result?.items);
}

const pageParameters = new Set(['max', 'sort', 'order', 'offset', 'after', 'fields', 'format', '_m']);

/** The filters of a list: its query parameters without those of paging, sorting and formats. */
export function filtersOf(document: InterfaceDocument, path: string): Parameter[] {
  const parameters = document.paths[path]?.get?.parameters ?? [];
  return parameters.filter(({ name, in: place }) => place === 'query' && !pageParameters.has(name));
}

/** Finds a query parameter of a GET operation. */
export function parameterOf(document: InterfaceDocument, path: string, name: string): Parameter | undefined {
  return document.paths[path]?.get?.parameters?.find((parameter) => parameter.name === name);
}

/** The fields by which a list can be sorted. */
export function sortsOf(document: InterfaceDocument, path: string): readonly string[] {
  return (parameterOf(document, path, 'sort')?.schema.enum ?? []).map(String);
}

/** Reports whether the interface has an operation, and a key of `scope` may use it. */
export function isAllowed(document: InterfaceDocument, scope: Scope, method: string, path: string): boolean {
  const operation = document.paths[path]?.[method.toLowerCase()];
  if (operation === undefined) return false;
  const required = operation['x-required-scope'];
  if (required === undefined || scope === 'admin') return true;
  if (required === 'stream') return scope !== 'read';
  return scopes.indexOf(scope) >= scopes.indexOf(required);
}
