import type { Endpoint, RequestContext } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import { limitToPage } from '../objects/keyset.js';
import { listResources } from '../objects/lists.js';
import type { Page } from '../objects/page.js';
import { afterEventPattern } from '../resources/event.js';
import { event } from '../resources/index.js';
import { textMatching } from '../schema/fields/text.js';
import { withDocumentation } from '../schema/fields.js';
import { type ListRequest, listQueryOf } from '../schema/list-parameters.js';
import { getString } from '../serialize/bson.js';

/** Lists of events: newest first, in order of their ids only. */
const { sort: _sort, ...listed } = Object.fromEntries(listQueryOf(event));
const after = withDocumentation(
  textMatching(18, (text) => afterEventPattern.test(text), 'the id of an event, or 0', {
    pattern: afterEventPattern.source,
  }),
  {
    about: 'Only events after this one, oldest first; 0: all.',
    example: '69214e6f0000000100',
  },
);

/** Creates the endpoint that lists the event log (reference/events.md#list). */
export function eventEndpoints(): Endpoint[] {
  return [
    {
      operationId: 'listEvents',
      path: '/events/',
      tag: 'events',
      summary: 'List the events of the account, newest first',
      description: 'With `after` only events after that one are listed, oldest first: read on from `next`.',
      scope: 'read',
      ...createListing(event, listEvents, {
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

/** Lists events; those after one of them oldest first, and `next` is the id of the last one while there are more. */
async function listEvents(ctx: RequestContext, request: ListRequest): Promise<Page> {
  const { filter, sort, params, max } = request;
  if (params.after === undefined) return listResources(ctx, event, request);
  const page = await listResources(ctx, event, {
    ...request,
    filter: { ...filter, _id: { $gt: params.after } },
    sort: { ...sort, direction: 1 },
    max: max + 1,
  });
  const { batches, last } = limitToPage(page.batches, { offset: 0, max }, true);
  const next = () => {
    const bson = last();
    return bson && getString(bson, '_id');
  };
  return { ...page, batches, next };
}
