import type { Schema } from '../fields.js';
import { isConditional, type Operation } from '../operation.js';
import { describeParameter } from './bodies.js';

/** The parameters of an operation: path, query, headers. */
export function describeParameters(operation: Operation): Schema[] {
  const { path, pathParameters = {}, query = new Map(), requiredQuery = [], result } = operation;
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
  return [
    ...names.map((name) => {
      const type = pathParameters[name];
      return parameter('path', name, type ? describeParameter(type) : { type: 'string', minLength: 1 }, true);
    }),
    ...[...query].map(([name, type]) =>
      parameter('query', name, describeParameter(type), requiredQuery.includes(name)),
    ),
    ...(hasEntityTag(operation) ? [ifNoneMatch] : []),
    ...(result.kind === 'file' ? [range] : []),
    ...(result.kind === 'feed' ? [lastEventId] : []),
    ...(isConditional(operation) ? [ifMatch] : []),
  ];
}

function hasEntityTag({ result }: Operation): boolean {
  if (result.kind === 'object') return result.type.versioned;
  return result.kind === 'file' || (result.kind === 'plain' && result.hasEntityTag === true);
}

/** Swagger UI fills in `example` of a parameter, but no `examples` of its schema: optional ones are to stay empty. */
function parameter(place: 'path' | 'query' | 'header', name: string, documented: Schema, isRequired = false): Schema {
  const { description, examples, ...schema } = documented;
  const example = Array.isArray(examples) ? examples[0] : undefined;
  return {
    name,
    in: place,
    required: isRequired,
    description,
    ...(isRequired && { example }),
    schema: isRequired || example === undefined ? schema : { ...schema, examples },
  };
}

function header(name: string, description: string, example: string): Schema {
  return parameter('header', name, { type: 'string', description, examples: [example] });
}

/** The header `If-None-Match`. */
export const ifNoneMatch = header('If-None-Match', 'An `ETag`: the answer is 304 if it is the current one.', '"7"');
const ifMatch = header('If-Match', 'An `ETag`: the answer is 4005 if it is not the current one; `*` is any.', '*');
const range = header('Range', 'One range of bytes, which is answered with 206.', 'bytes=0-9');
const lastEventId = header('Last-Event-ID', 'The `id` to resume behind, as browsers send it.', '69214e6f0000000100');
