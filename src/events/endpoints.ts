import type { Endpoint } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import { listResources } from '../objects/lists.js';
import { eventIdPattern } from '../resources/event.js';
import { event } from '../resources/index.js';
import { textMatching } from '../schema/fields/text.js';
import { withDocumentation } from '../schema/fields.js';
import { type ListRequest, listQueryOf } from '../schema/list-parameters.js';

const eventIdOrBeginning = textMatching(
  18,
  (text) => text === '0' || eventIdPattern.test(text),
  'the id of an event, or 0',
  { pattern: `^0$|${eventIdPattern.source}` },
);

/** Lists of events: newest first, in order of their ids only. */
const { sort: _sort, ...listed } = Object.fromEntries(listQueryOf(event));
const after = withDocumentation(eventIdOrBeginning, {
  about: 'Only events after this one, oldest first; 0: all.',
  example: '69214e6f0000000100',
});

/** Creates the endpoint that lists the event log (reference/events.md#list). */
export function eventEndpoints(): Endpoint[] {
  return [
    {
      operationId: 'listEvents',
      path: '/events/',
      tag: 'events',
      summary: 'List the events of the account, newest first',
      description: 'With `after` only events after that one are listed, oldest first: read on from the last `id`.',
      scope: 'read',
      ...createListing(event, (ctx, request) => listResources(ctx, event, continueAfter(request)), {
        params: new Map(Object.entries(listed)),
        extra: { after },
        isAfterId: true,
        direction: -1,
        check: (values, faults) => {
          if (values.after !== undefined && values.order === -1) faults.order = 'must be 1 with after';
        },
      }),
    },
  ];
}

/** Lists the events after one of them, oldest first. */
function continueAfter(request: ListRequest): ListRequest {
  const { filter, sort, params } = request;
  if (params.after === undefined) return request;
  return { ...request, filter: { ...filter, _id: { $gt: params.after } }, sort: { ...sort, direction: 1 } };
}
