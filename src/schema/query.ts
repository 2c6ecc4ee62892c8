import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import { decodePercent } from '../lib/percent-decoding.js';
import { max_identifier_length } from './fields/text.js';
import type { FieldType, Values } from './fields.js';

/** Name-value pairs of a query, in the order given. */
export type Query = readonly (readonly [string, string])[];

/** Checks parameters against each other. */
export type ParameterCheck = (values: Values, faults: FieldErrors) => void;

/** Checks query parameters against `params` (reference/requests.md#parameters). @throws AppError badParameter (4004) */
export function parseQuery(query: Query, params: ReadonlyMap<string, FieldType>, check?: ParameterCheck): Values {
  const faults = createFieldErrors();
  const values: Values = Object.create(null) as Values;
  const seen = new Set<string>();
  for (const [param, value] of query) {
    const type = params.get(param);
    if (type?.query === undefined) faults[param] = 'unknown parameter';
    else if (seen.has(param)) faults[param] = 'must be given once';
    else if (value === '') faults[param] = 'must not be empty';
    else values[param] = type.query(value, param, faults);
    seen.add(param);
  }
  check?.(values, faults);
  throwIfAny('badParameter', faults);
  return values;
}

/** Splits the query of a URL, without `?`. @throws AppError badParameter (4004) unless it is percent-encoded UTF-8 */
export function splitQuery(search: string): Query {
  if (search === '') return [];
  return search
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const at = pair.indexOf('=');
      const name = at < 0 ? pair : pair.slice(0, at);
      return [decode(name, name), at < 0 ? '' : decode(pair.slice(at + 1), name)] as const;
    });
}

function decode(encoded: string, name: string): string {
  const decoded = decodePercent(encoded.replaceAll('+', ' '));
  if (decoded === undefined) throw new AppError('badParameter', { [name]: 'must be percent-encoded UTF-8' });
  return decoded;
}

/** Checks an identifier of a path (reference/identifiers.md#id_developer). @throws AppError badParameter (4004) */
export function checkIdentifier(id: string, param: string): string {
  if (!id.includes('@')) throw new AppError('badParameter', { [param]: 'must be an identifier such as name@account' });
  if (id.length > 2 * max_identifier_length || [...id].length > max_identifier_length || id.includes('\0')) {
    throw new AppError('badParameter', { [param]: `must be at most ${max_identifier_length} characters without NUL` });
  }
  return id;
}
