import { RequestError } from './errors.js';
import type { Self } from './interface.js';
import { pageSettings } from './page-settings.js';
import { limitFields } from './resources.js';

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
  /** The unit of a number, such as `bytes`. */
  'x-unit'?: string;
  /** Plural of the type whose identifiers the values are. */
  'x-references'?: string;
  /** Plural of the catalogue of usual values. */
  'x-catalogue'?: string;
  /** The field of which this is another name. */
  'x-alias-of'?: string;
  /** The storage provider that has the setting. */
  'x-provider'?: string;
  /** Answers show it only where `fields` names it. */
  'x-requested'?: true;
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  description?: string;
  schema: Schema;
  /** Stands for all parameters whose names begin with it: `latest.` for `latest.bar_from`. */
  isPrefix?: true;
}

type Content = Readonly<Record<string, { schema: Schema }>>;
export type Scope = Self['scope'];

interface Operation {
  parameters?: readonly Parameter[];
  'x-path-filters'?: readonly string[];
  'x-required-scope'?: Scope | 'any';
  /** It concerns the account as a whole. */
  'x-limited-keys'?: 'refused';
  requestBody?: { content: Content };
  responses: Readonly<Record<string, { content?: Content }>>;
}

interface OpenApiDocument {
  info: { version: string };
  servers: readonly { url: string }[];
  paths: Readonly<Record<string, Readonly<Record<string, Operation | undefined>>>>;
  components: { schemas: Readonly<Record<string, Schema>> };
}

/** The operations of the interface, for the key of the session. Paths are those of the document, with `{parameters}`. */
export interface Interface {
  version: string;
  /** Reports whether there is such an operation, and the key may use it for any object. */
  can(method: string, path: string): boolean;
  /** The schema of the body that an operation takes, without what the key may not set. */
  bodyOf(method: string, path: string): Schema;
  /** The schema of one entry of a list. */
  entryOf(path: string): Schema;
  /** The filters of a list: its query parameters without those of paging, sorting and formats. */
  filtersOf(path: string): Parameter[];
  /** Finds a parameter of an operation. */
  parameterOf(path: string, name: string, method?: string): Parameter | undefined;
  /** Follows a reference to `components.schemas`. */
  resolve(schema: Schema | undefined): Schema;
}

/** Reads `/openapi.json`, and learns from it the path of {base_url}. */
export async function loadDocument(signal: AbortSignal): Promise<OpenApiDocument> {
  const response = await fetch(`${pageSettings.prefix}/openapi.json`, { signal }).catch(() => undefined);
  if (response?.ok !== true) throw new RequestError(response?.status ?? 0, 0, 'no description of the interface');
  const document = (await response.json()) as OpenApiDocument;
  const [server] = document.servers;
  if (server !== undefined) pageSettings.base = new URL(server.url, location.href).pathname.replace(/\/$/, '');
  return document;
}

const allowedBy: Readonly<Record<Scope, readonly string[]>> = {
  stream: ['any', 'stream'],
  device: ['any'],
  read: ['any', 'read'],
  write: ['any', 'stream', 'read', 'write'],
  admin: ['any', 'stream', 'read', 'write', 'admin'],
};
const pageParameters = new Set(['max', 'sort', 'order', 'offset', 'after', 'fields', 'format', '_m']);

const prefixParameter = { in: 'query', schema: {}, isPrefix: true } as const;

const levels: readonly string[] = Object.values(limitFields);
/** Lists streams of one device, unless the key sees the whole account. */
const streams_path = '/streams/';

/** Looks operations up in the document for the key of the session. */
export function createInterface({ info, paths, components }: OpenApiDocument, self: Self): Interface {
  const fields = Object.keys(limitFields);
  const limit_level = fields.findIndex((field) => Reflect.get(self, field) !== undefined);
  const isLimited = limit_level >= 0;
  const isPermitted = ({ 'x-required-scope': scope, 'x-limited-keys': limited }: Operation) =>
    scope !== undefined &&
    allowedBy[self.scope].includes(scope) &&
    !(isLimited && (limited === 'refused' || scope === 'admin'));
  /** Counts the levels from the limit down to the type of a path, negative above it; undefined for a type without a level. */
  const levelsBelow = (path: string) => {
    const level = levels.indexOf(path.split('/')[1] ?? '');
    return isLimited && level >= 0 ? level - limit_level : undefined;
  };
  const find = (method: string, path: string) => paths[path]?.[method.toLowerCase()];
  const jsonOf = (content: Content | undefined) => resolve(content?.['application/json']?.schema);

  function resolve(schema: Schema = {}): Schema {
    const name = schema.$ref?.split('/').at(-1);
    if (name === undefined) return schema;
    return { ...components.schemas[name], ...(schema.description && { description: schema.description }) };
  }

  return {
    version: info.version,
    can(method, path) {
      const operation = find(method, path);
      if (operation === undefined || !isPermitted(operation)) return false;
      if (isLimited && path === streams_path && method === 'GET') return self.id_device !== undefined;
      const below = levelsBelow(path) ?? 1;
      // the object that the key names is the only one of its type, and stays where it is
      const isNamed = below === 0 && /^\/\w+\/(?:\{\w+\}\/)?$/.test(path);
      return below >= 0 && !(isNamed && (method === 'POST' || method === 'DELETE'));
    },
    bodyOf(method, path) {
      const schema = jsonOf(find(method, path)?.requestBody?.content);
      if (levelsBelow(path) !== 0 || schema.properties === undefined) return schema;
      const kept = Object.entries(schema.properties).filter(([field]) => !fields.includes(field));
      return { ...schema, properties: Object.fromEntries(kept) };
    },
    entryOf: (path) => resolve(jsonOf(find('GET', path)?.responses['200']?.content).properties?.result?.items),
    filtersOf(path) {
      const { parameters = [], 'x-path-filters': members = [] } = find('GET', path) ?? {};
      const own = parameters.filter(({ name, in: place }) => place === 'query' && !pageParameters.has(name));
      return [...own, ...members.map((member) => ({ ...prefixParameter, name: `${member}.` }))];
    },
    parameterOf: (path, name, method = 'GET') =>
      find(method, path)?.parameters?.find((parameter) => parameter.name === name),
    resolve,
  };
}

/** Reports whether a parameter of a request is the one that is described. */
export function isParameter({ name, isPrefix }: Parameter, sent: string): boolean {
  return isPrefix ? sent.startsWith(name) : sent === name;
}

/** Returns the type of a schema's values, `null` aside. */
export function typeOf({ type }: Schema): string | undefined {
  return Array.isArray(type) ? type.find((name) => name !== 'null') : type;
}

/** Reports whether values are times in epoch seconds. */
export function isTime(schema: Schema): boolean {
  return schema['x-unit'] === 'seconds since 1970';
}
