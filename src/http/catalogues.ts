import { deviceTypes } from '../catalogues/device-types.js';
import { locales } from '../catalogues/locales.js';
import { sensorTypes } from '../catalogues/sensors.js';
import { timeZones } from '../catalogues/time-zones.js';
import { paging, parseQuery } from '../schema/validation.js';
import type { Endpoint } from './context.js';
import { sendList } from './respond.js';

const parameters = new Map(Object.entries(paging));

/** Creates the endpoints `/types/`, `/sensors/`, `/time_zones/` and `/locales/` (reference/resources.md#catalogues). */
export function catalogueEndpoints(): Endpoint[] {
  return [
    catalogue('types', 'type', 'type', 'device types', deviceTypes),
    catalogue('sensors', 'sensor', 'sensor', 'sensor types', sensorTypes),
    catalogue('time_zones', 'time_zone', 'tz', 'time zones', timeZones),
    catalogue('locales', 'locale', 'locale', 'locales', locales),
  ];
}

function catalogue(plural: string, name: string, field: string, label: string, entries: readonly string[]): Endpoint {
  const reversed = entries.toReversed();
  return {
    method: 'get',
    path: `/${plural}/`,
    tag: 'catalogues',
    summary: `List the ${label}`,
    scope: 'read',
    query: parameters,
    result: {
      kind: 'list',
      type: {
        name,
        plural,
        schema: { type: 'object', properties: { [field]: { type: 'string' } }, required: [field] },
      },
    },
    failures: ['badParameter'],
    handle({ response, query }) {
      const given = parseQuery(query, parameters);
      const { max = entries.length, offset = 0, order } = given as { max?: number; offset?: number; order?: number };
      const page = (order === -1 ? reversed : entries).slice(offset, offset + max);
      sendList(
        response,
        name,
        entries.length,
        page.map((entry) => ({ [field]: entry })),
      );
    },
  };
}
