import type { Query } from './client.js';
import type { Entry } from './resources.js';

/** The fields that name the devices which a rule covers; at most one is set. */
export const scopeFields: readonly string[] = [
  'id_model',
  'id_project',
  'id_service',
  'id_group',
  'id_asset',
  'id_device',
  'filter',
];

/** Builds the filters of the devices that an alarm rule covers; none if it covers all. */
export function queryOfScope(rule: Entry): Query {
  const scope = scopeFields.filter((field) => typeof rule[field] === 'string' && rule[field] !== '');
  return Object.fromEntries(
    scope.map((field) => [field === 'id_device' ? 'id_developer' : field, String(rule[field])]),
  );
}
