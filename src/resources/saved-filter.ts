import { AppError } from '../errors.js';
import { text, withRule } from '../schema/fields/text.js';
import { type FieldType, required } from '../schema/fields.js';
import { createListParser, filterParametersOf, type ListRequest } from '../schema/list-parameters.js';
import { splitQuery } from '../schema/query.js';
import { buildMessages, defineResource, description, uniqueName } from '../schema/resource.js';
import { bySavedFilter } from './device/configs.js';
import { device } from './device/index.js';

const parameters = new Map(
  [...filterParametersOf(device)].filter(([param]) => !Object.hasOwn(bySavedFilter.params, param)),
);
const parse = createListParser(device, {
  params: parameters,
  check: (_values, faults, query) => {
    if (query.length === 0) faults.filter = 'at least one filter must be given';
  },
});

/** Parses a saved query. @throws AppError badParameter (4004) */
export function parseSavedQuery(query: string, now: number): ListRequest {
  return parse(splitQuery(query), now);
}

/** A query of the list of devices with filters only. Its faults are reported together. */
function savedQuery(): FieldType {
  return withRule(text(4000), (query) => {
    try {
      parseSavedQuery(query, 0);
      return undefined;
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return describeFaults(error);
    }
  });
}

/** The faults of a query in one sentence: `sort: unknown parameter`. */
export function describeFaults({ details }: AppError): string {
  return Object.entries(details)
    .map(([param, fault]) => `${param}: ${fault}`)
    .join('; ')
    .slice(0, 1000);
}

/** A filter of devices that is used by its name (reference/filters.md#fields). */
export const savedFilter = defineResource({
  name: 'filter',
  plural: 'filters',
  title: 'SavedFilter',
  messages: buildMessages('Filter'),
  example: { name: 'Silent pumps', query: 'type=pump&status=no_data', description: 'For the morning shift' },
  fields: {
    name: uniqueName,
    query: required(savedQuery(), {
      about: 'Query string of a list of devices, percent-encoded, with at least one filter and nothing else.',
    }),
    description,
  },
});
