import type { Query } from './client.js';
import type { Entry } from './resources.js';

const scopeFields = ['id_model', 'id_project', 'id_service', 'id_group', 'id_asset', 'filter'] as const;

/** Builds the filters of the devices that an alarm rule covers; none if it covers all. */
export function queryOfScope({ id_device, ...rule }: Entry): Query {
  const scope = scopeFields.filter((field) => typeof rule[field] === 'string' && rule[field] !== '');
  return {
    ...Object.fromEntries(scope.map((field) => [field, String(rule[field])])),
    ...(typeof id_device === 'string' && { id_developer: id_device }),
  };
}
