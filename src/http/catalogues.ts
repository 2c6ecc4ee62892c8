import { deviceTypes } from '../catalogues/device-types.js';
import { sensorTypes } from '../catalogues/sensors.js';
import { timeZones } from '../catalogues/time-zones.js';
import { paging, parseQuery } from '../schema/validation.js';
import type { Endpoint } from './context.js';
import { sendList } from './respond.js';

const parameters = new Map(Object.entries(paging));

/** Creates the endpoints `/types/`, `/sensors/` and `/time_zones/` (reference/resources.md#catalogues). */
export function catalogueEndpoints(): Endpoint[] {
  return [
    catalogue({ plural: 'types', name: 'type', title: 'DeviceType' }, 'type', 'Usual device type.', deviceTypes),
    catalogue({ plural: 'sensors', name: 'sensor', title: 'Sensor' }, 'sensor', 'Usual kind of sensor.', sensorTypes),
    catalogue({ plural: 'time_zones', name: 'time_zone', title: 'TimeZone' }, 'tz', 'IANA time zone.', timeZones),
  ];
}

function catalogue(
  { plural, name, title }: { plural: string; name: string; title: string },
  field: string,
  about: string,
  entries: readonly string[],
): Endpoint {
  const reversed = entries.toReversed();
  const properties = { [field]: { type: 'string', description: about, examples: [entries[0]] } };
  return {
    operationId: `list${title}s`,
    method: 'get',
    path: `/${plural}/`,
    tag: 'catalogues',
    summary: `List the ${plural.replace('_', ' ')}`,
    scope: 'read',
    query: parameters,
    result: {
      kind: 'list',
      type: {
        name,
        plural,
        title,
        schema: {
          title,
          type: 'object',
          description: `An entry of /${plural}/.`,
          properties,
          required: [field],
          additionalProperties: false,
          examples: [{ [field]: entries[0] }],
        },
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
