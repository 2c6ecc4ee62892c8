import type { Failure } from '../errors.js';
import type { FieldType, Schema } from './fields.js';
import type { ParsedJson } from './json.js';
import type { ListedType } from './resource.js';

/** Scopes of API keys (reference/access.md#scopes). */
export const scopes = ['stream', 'device', 'read', 'write', 'admin'] as const;
export type Scope = (typeof scopes)[number];

const allowedBy: Readonly<Record<Scope, readonly Scope[]>> = {
  stream: ['stream'],
  device: ['stream', 'device'],
  read: ['read'],
  write: ['stream', 'read', 'write'],
  admin: scopes,
};

/** The scope that an operation needs; `any`: every key may call it. */
export type RequiredScope = Scope | 'any';

/** Reports whether a key of scope `held` may call an operation of scope `needed`. */
export function isScopeSufficient(held: Scope, needed: RequiredScope): boolean {
  return needed === 'any' || allowedBy[held].includes(needed);
}

/** Reports whether a key may call an operation. */
export function isPermitted(
  { scope: held, limit }: { scope: Scope; limit?: { field: string } | undefined },
  { scope, isForDevices, limitedKeys }: Pick<Operation, 'scope' | 'isForDevices' | 'limitedKeys'>,
): boolean {
  if (limit !== undefined && (limitedKeys === 'refused' || scope === 'admin')) return false;
  return isScopeSufficient(held, scope) || (held === 'device' && isForDevices === true);
}

/** Outcomes of a change (reference/requests.md#answers). */
export const successes = {
  created: { code: 2001, status: 200 },
  stored: { code: 2001, status: 201 },
  deleted: { code: 2004, status: 200 },
  updated: { code: 2005, status: 200 },
  counted: { code: 2006, status: 200 },
} as const;

export interface Success {
  success: keyof typeof successes;
  message: string;
}

/** The result of a change that was only counted. */
export const wouldChange: Success = { success: 'counted', message: 'would change' };

/** The response of an operation that succeeds. */
export type OperationResult =
  /** `hasLocation`: `Location` has the path of what was created. `hasEntityTag`: `ETag` is that of other details than a type's. */
  | ({ kind: 'status'; details?: ListedType | Schema; hasLocation?: true; hasEntityTag?: true } & Success)
  | { kind: 'object'; type: ListedType }
  | {
      kind: 'list';
      type: ListedType | { name: string; plural: string; title: string; schema: Schema };
      /** Schema of `metadata`, which lists show on request. */
      metadata?: Schema;
    }
  | { kind: 'file'; type: ListedType }
  /** Server-sent events. */
  | { kind: 'feed'; type: ListedType }
  | { kind: 'plain'; schema: Schema; hasEntityTag?: true }
  /** Lines of JSON, each of this schema. */
  | { kind: 'lines'; schema: Schema };

/** One operation of the interface, as the router serves it and the OpenAPI document describes it. */
export interface Operation {
  /** Unique name, `getDeviceOfGroup`: methods of generated clients are called so. */
  operationId: string;
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** Path below {base_url}, with `{parameters}` and the closing slash. */
  path: string;
  /** The last segment is a literal where other operations have a parameter: other methods belong to those. */
  givesWay?: true;
  tag: string;
  summary: string;
  /** Further explanation in Markdown. */
  description?: string;
  scope: RequiredScope;
  /** Keys of scope `device` may call it too, for their device. */
  isForDevices?: true;
  /** `refused`: it concerns the account as a whole (reference/access.md#limited-keys). */
  limitedKeys?: 'refused' | undefined;
  /** Types of the parameters in the path, for the OpenAPI document. */
  pathParameters?: Readonly<Record<string, FieldType>>;
  query?: ReadonlyMap<string, FieldType>;
  /** Members whose paths are parameters too; absent: those of the type that it lists. */
  pathFilters?: readonly string[];
  /** Names of the query parameters that must be given. */
  requiredQuery?: readonly string[];
  body?: {
    /** Absent: the OpenAPI document leaves the body to the description. */
    schema?: Schema;
    /** More bodies that succeed, by name; the schema has the first one. */
    moreExamples?: Readonly<Record<string, unknown>>;
    updating: boolean;
    /** Default: `body_limit_bytes`. */
    limit_bytes?: number;
    /** An object (the default), any JSON, or an object that may be missing. */
    shape?: 'object' | 'any' | 'optional';
    /** Parses a body that is labelled as XML; without it such a body is read as JSON too. */
    parseXml?: (body: Buffer, yieldTurn: () => Promise<void>) => Promise<ParsedJson>;
  };
  /** Examples by media type of a body that the endpoint reads by itself, without a limit. */
  upload?: Readonly<Record<string, string>>;
  result: OperationResult;
  /** Differences for programs of the former platform. */
  legacy?: {
    /** Body of a 401 for firmware, which expects `{response}`. */
    unauthorized?: string;
    /** An identifier without `@` answers 4041 instead of 4004 (reference/identifiers.md#id_developer). */
    isMalformedIdNotFound?: boolean;
  };
  /** Can keep the database busy for long: waits for a share of it (reference/limits.md#shares). */
  isCostly?: boolean;
  /** Failures that do not follow from path, query, body and version as `failuresOf` derives them. */
  failures?: readonly Failure[];
}

/** Every operation can fail in these ways. */
const commonFailures = [
  'unauthorized',
  'forbidden',
  'tooMany',
  'database',
  'exception',
  'overloaded',
] as const satisfies Failure[];

/** Derives the failures of an operation, in the order of the document. */
export function failuresOf(operation: Operation): readonly Failure[] {
  const { path, query, body, failures } = operation;
  if (failures !== undefined) return [...failures, ...commonFailures];
  const hasJson = body !== undefined && body.shape !== 'optional';
  return [
    ...(hasJson ? ([body.updating ? 'noBody' : 'badJson'] as const) : []),
    'badParameter',
    ...(hasJson ? (['invalid'] as const) : []),
    ...(path.includes('{') ? (['notFound'] as const) : []),
    ...(isConditional(operation) || query?.has('confirm') ? (['conflict'] as const) : []),
    ...(body ? (['tooLarge'] as const) : []),
    ...commonFailures,
  ];
}

/** Reports whether the operation takes `If-Match`. */
export function isConditional({ query, body, result }: Operation): boolean {
  return isVersionChecked(result) || (body?.updating === true && query?.has('version') === true);
}

/** Reports whether the operation updates an object that has a version. */
export function isVersionChecked(result: OperationResult): boolean {
  return (
    result.kind === 'status' && result.success === 'updated' && isListed(result.details) && result.details.versioned
  );
}

/** Reports whether a result is an object of a type. */
export function isListed(details: ListedType | Schema | undefined): details is ListedType {
  return details !== undefined && 'fields' in details;
}

/** The limit of a body that has none of its own. */
export const body_limit_bytes = 1024 * 1024;
