import { type Schema, typeOf } from '../api/document.js';

/** Turns typed text into numbers where the schema has them, at any depth. */
export function toNumbers(value: unknown, referring: Schema | undefined, resolve: ResolveSchema): unknown {
  const schema = resolve(referring);
  const type = typeOf(schema);
  if (type === 'number' || type === 'integer') return toNumber(value);
  if (Array.isArray(value)) return value.map((item) => toNumbers(item, schema.items, resolve));
  if (typeof value !== 'object' || value === null || schema.properties === undefined) return value;
  const members = Object.entries(value);
  return Object.fromEntries(
    members.map(([name, member]) => [name, toNumbers(member, schema.properties?.[name], resolve)]),
  );
}

type ResolveSchema = (schema: Schema | undefined) => Schema;

/** Also where the text of a number is not how it is printed: `1.50`, `1e3`. */
function toNumber(value: unknown): unknown {
  if (typeof value !== 'string' || value.trim() === '') return value;
  const converted = Number(value.replace(',', '.'));
  return Number.isNaN(converted) ? value : converted;
}
