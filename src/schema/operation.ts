import type { Failure } from '../errors.js';
import type { FieldType, Schema } from './fields.js';
import type { ListedType } from './resource.js';

/** What a key may do: `stream` sends streams, `read` is GET only, `write` all but keys and linked storage (contract 2). */
export const scopes = ['stream', 'read', 'write', 'admin'] as const;
export type Scope = (typeof scopes)[number];

const allowed: Readonly<Record<Scope, readonly Scope[]>> = {
  stream: ['stream'],
  read: ['read'],
  write: ['stream', 'read', 'write'],
  admin: scopes,
};

/** Whether a key of scope `held` may call what needs `needed`. */
export function permits(held: Scope, needed: Scope): boolean {
  return allowed[held].includes(needed);
}

/** What an operation answers when it goes well. */
export type OperationResult =
  | {
      kind: 'status';
      code: 2001 | 2004 | 2005;
      status: 200 | 201;
      message: string;
      details?: ListedType | Schema;
      created?: true;
    }
  | { kind: 'object'; type: ListedType }
  | {
      kind: 'list';
      type: ListedType | { name: string; plural: string; schema: Schema };
      /** What stands beside the result, where it is asked for. */
      extra?: Readonly<Record<string, Schema>>;
    }
  | { kind: 'file'; type: ListedType }
  | { kind: 'plain'; schema: Schema };

/** One operation of the interface, as the router serves it and the OpenAPI document tells it. */
export interface Operation {
  method: 'get' | 'post' | 'put' | 'delete';
  /** Below {base_url}, with `{parameters}` and the closing slash. */
  path: string;
  tag: string;
  summary: string;
  scope: Scope;
  /** Query parameters; none where absent. */
  query?: ReadonlyMap<string, FieldType>;
  /** Those of them that must be given. */
  requiredQuery?: readonly string[];
  body?: {
    schema: Schema;
    updating: boolean;
    limit_bytes: number;
    /** A JSON object, any JSON, or an object that may be missing. */
    shape?: 'object' | 'any' | 'optional';
  };
  result: OperationResult;
  /** What a 401 says in `{response}` where clients in the field look for that and not for the numbered body. */
  legacy401?: string;
  /** Beyond those that every operation may answer. */
  failures: readonly Failure[];
}

export const body_limit_bytes = 1024 * 1024;
