import { isDeepStrictEqual } from 'node:util';
import { isPlainObject } from '../fields/object.js';
import type { Schema } from '../fields.js';

interface Components {
  schemas: Record<string, unknown>;
  responses: Record<string, unknown>;
}

/**
 * Replaces schemas and responses that have a title by references, and returns them by title in binary order.
 * @throws Error for two different ones of one title
 */
export function hoistComponents(root: Schema): Components & { node: unknown } {
  const components: Components = { schemas: {}, responses: {} };
  const node = hoist(root, components, new Map());
  return { node, schemas: sortByKey(components.schemas), responses: sortByKey(components.responses) };
}

/** @param hoisted results by input, as declarations share their schemas */
function hoist(node: unknown, components: Components, hoisted: Map<unknown, unknown>): unknown {
  if (Array.isArray(node)) return node.map((item) => hoist(item, components, hoisted));
  if (!isPlainObject(node)) return node;
  const result = hoisted.get(node) ?? hoistObject(node, components, hoisted);
  hoisted.set(node, result);
  return result;
}

function hoistObject(node: Schema, components: Components, hoisted: Map<unknown, unknown>): unknown {
  const object = Object.fromEntries(
    Object.entries(node).map(([key, inner]) => [key, hoist(inner, components, hoisted)]),
  );
  if (typeof object.title !== 'string') return object;
  const { title, ...part } = object;
  const group = 'content' in part ? 'responses' : 'schemas';
  components[group][title] ??= part;
  if (!isDeepStrictEqual(components[group][title], part)) throw new Error(`two different ${group} ${title}`);
  return { $ref: `#/components/${group}/${title}` };
}

function sortByKey(parts: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(parts).sort(([name], [other]) => (name < other ? -1 : 1)));
}
