import { deviceTypes } from '../resources/catalogues/device-types.js';
import { locales } from '../resources/catalogues/locales.js';
import { sensorTypes } from '../resources/catalogues/sensors.js';
import { timeZones } from '../resources/catalogues/time-zones.js';
import { text } from '../schema/fields/text.js';
import { withDocumentation } from '../schema/fields.js';
import { checkPageSize, fieldsOf, format, max, outputOf, paging } from '../schema/list-parameters.js';
import { describeClosed } from '../schema/openapi/bodies.js';
import { parseQuery } from '../schema/query.js';
import type { Endpoint } from './context.js';
import { chooseListFormat } from './negotiate.js';

const after = withDocumentation(text(100), {
  about: 'Continues the list in the order of its values: 0, then the value of next. Not with order or offset.',
  example: '0',
});

/** Creates the endpoints `/types/`, `/sensors/`, `/time_zones/` and `/locales/` (reference/resources.md#catalogues). */
export function catalogueEndpoints(): Endpoint[] {
  return [
    catalogue({ plural: 'types', name: 'type', title: 'DeviceType' }, 'type', 'Usual device type.', deviceTypes),
    catalogue({ plural: 'sensors', name: 'sensor', title: 'Sensor' }, 'sensor', 'Usual kind of sensor.', sensorTypes),
    catalogue({ plural: 'time_zones', name: 'time_zone', title: 'TimeZone' }, 'tz', 'IANA time zone.', timeZones),
    catalogue({ plural: 'locales', name: 'locale', title: 'Locale' }, 'locale', 'Language tag (BCP 47).', locales),
  ];
}

function catalogue(
  { plural, name, title }: { plural: string; name: string; title: string },
  field: string,
  about: string,
  entries: readonly string[],
): Endpoint {
  const columns = { names: [field], has: (path: string) => path === field };
  const parameters = new Map(Object.entries({ ...paging, max, format, fields: fieldsOf(columns), after }));
  const properties = { [field]: { type: 'string', description: about, examples: [entries[0]] } };
  const schema = describeClosed(title, `An entry of /${plural}/.`, properties, {
    examples: [{ [field]: entries[0] }],
  });
  return {
    operationId: `list${title}s`,
    method: 'get',
    path: `/${plural}/`,
    tag: 'catalogues',
    summary: `List the ${plural.replace('_', ' ')}`,
    scope: 'read',
    query: parameters,
    result: { kind: 'list', type: { name, plural, title, schema } },
    handle({ request, query }) {
      const accepted = chooseListFormat(request.headers.accept);
      const params = parseQuery(query, parameters, (values, faults) => {
        checkPageSize(values, outputOf(columns, values, accepted).format, faults);
        if (values.after !== undefined && (values.order !== undefined || values.offset !== undefined))
          faults.after ??= 'must not come with order and offset';
      });
      const { page, next } = selectPage(entries, params);
      const values = page.map((entry) => ({ [field]: entry }));
      return { values: { total_documents: entries.length, values, next, output: outputOf(columns, params, accepted) } };
    },
  };
}

/** Selects a page of a catalogue; `next` continues it if it was asked for by `after`. */
function selectPage(
  entries: readonly string[],
  { max = entries.length, offset = 0, order, after }: { max?: number; offset?: number; order?: number; after?: string },
) {
  if (after === undefined) {
    const ordered = order === -1 ? entries.toReversed() : entries;
    return { page: ordered.slice(offset, offset + max), next: undefined };
  }
  const rest = entries.toSorted().filter((entry) => after === '0' || entry > after);
  const page = rest.slice(0, max);
  return { page, next: rest.length > page.length ? page.at(-1) : undefined };
}
