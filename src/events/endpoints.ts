import type { Endpoint } from '../http/context.js';
import { readList } from '../http/list-request.js';
import { listResources } from '../objects/lists.js';
import { eventIdPattern } from '../resources/event.js';
import { event } from '../resources/index.js';
import { columnsOf } from '../schema/columns.js';
import { textMatching } from '../schema/fields/text.js';
import { type FieldType, withDocumentation } from '../schema/fields.js';
import { checkPageSize, isRowFormat, listQueryOf, outputOf } from '../schema/list-query.js';
import { buildListFilter, type ListFormat, type ListRequest, parseQuery, type Query } from '../schema/validation.js';

/** Lists of events: newest first, in order of their ids only. */
const { sort: _sort, ...listed } = Object.fromEntries(listQueryOf(event));
const parameters = new Map<string, FieldType>([
  ...Object.entries(listed),
  [
    'after',
    withDocumentation(
      textMatching(18, (text) => eventIdPattern.test(text), 'the id of an event', { pattern: eventIdPattern.source }),
      { about: 'Only events after this one, oldest first.', example: '69214e6f0000000100' },
    ),
  ],
]);

const columns = columnsOf(event);

/** Creates the endpoint that lists the event log (reference/events.md#list). */
export function eventEndpoints(): Endpoint[] {
  return [
    {
      operationId: 'listEvents',
      method: 'get',
      path: '/events/',
      tag: 'events',
      summary: 'List the events of the account, newest first',
      description: 'With `after` only events after that one are listed, oldest first: read on from the last `id`.',
      scope: 'read',
      query: parameters,
      result: { kind: 'list', type: event },
      handle: (ctx) => readList(ctx, parseEventQuery, (_ctx, request) => listResources(ctx, event, request)),
    },
  ];
}

/** @throws AppError badParameter (4004) */
function parseEventQuery(query: Query, now: number, accepted: ListFormat): ListRequest {
  const given = parseQuery(query, parameters, (values, faults) => {
    for (const filter of event.filters) filter.check?.(values, faults);
    if (values.after !== undefined && values.order === -1) faults.order = 'must be 1 with after';
    checkPageSize(values, (values.format as ListFormat | undefined) ?? accepted, faults);
  });
  const { after, order, max, offset } = given;
  const filter = buildListFilter(event, given, now);
  const output = outputOf(columns, given, accepted);
  return {
    filter: after === undefined ? filter : { ...filter, _id: { $gt: after } },
    sort: { key: event.defaultSort, paths: ['_id'], direction: order === 1 || after !== undefined ? 1 : -1 },
    max: typeof max === 'number' ? max : isRowFormat(output.format) ? Number.POSITIVE_INFINITY : 1000,
    offset: typeof offset === 'number' ? offset : 0,
    now,
    params: given,
    output,
  };
}
