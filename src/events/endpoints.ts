import { limitFilter } from '../db/reach.js';
import type { Endpoint, RequestContext } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import { openFeed } from '../http/live/feed.js';
import { createResumeParameter, feedDescription, readResumeId } from '../http/live/resume.js';
import type { SendFeed } from '../http/live/send-feed.js';
import type { Page } from '../objects/page.js';
import { limitToPage } from '../objects/select/keyset.js';
import { listResources } from '../objects/select/lists.js';
import { assertFilterApplies } from '../objects/select/saved-filters.js';
import { afterEventPattern } from '../resources/event.js';
import { event } from '../resources/index.js';
import { identifierText, textMatching } from '../schema/fields/text.js';
import { type FieldType, withDocumentation } from '../schema/fields.js';
import { isMatch } from '../schema/filters.js';
import { buildListFilter, filterParametersOf, type ListRequest, listQueryOf } from '../schema/list-parameters.js';
import { parseQuery } from '../schema/query.js';
import { getString } from '../serialize/bson.js';
import type { IsSelectedByFilter } from './device-filter.js';
import type { EventEntry, EventFeedSource } from './event-tail.js';

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

const resumeAfter = createResumeParameter(afterEventPattern, 'an event, or 0');
const filter = withDocumentation(identifierText(), {
  about: 'Only events of devices, and only of those that this saved filter selects.',
  example: 'Silent pumps@demo',
  references: 'filters',
});
const parameters: ReadonlyMap<string, FieldType> = new Map([
  ...filterParametersOf(event),
  ['filter', filter],
  ['after', resumeAfter],
]);

interface FeedDeps {
  source: EventFeedSource;
  isSelectedByFilter: IsSelectedByFilter;
}

/** Creates the endpoint of the live feed of events (reference/events.md#live-feeds). */
export function liveEventEndpoints({ source, isSelectedByFilter }: FeedDeps, sendFeed: SendFeed): Endpoint[] {
  return [
    {
      operationId: 'followEvents',
      method: 'get',
      path: '/events/live/',
      tag: 'events',
      summary: 'Follow the events of the account',
      description: `${feedDescription} The name of an event is its \`type\`.`,
      scope: 'read',
      isCostly: true,
      query: parameters,
      result: { kind: 'feed', type: event },
      async handle(ctx) {
        const values = parseQuery(ctx.query, parameters, (parsed, faults) => {
          for (const filter of event.filters) filter.check?.(parsed, faults);
        });
        const { filter: saved } = values;
        if (typeof saved === 'string') await assertFilterApplies(ctx, saved);
        const narrowed = limitFilter(ctx.limit, event, { filter: buildListFilter(event, values, ctx.now) });
        const query = {
          ...{ account: ctx.account, filter: narrowed, needsPreparation: false },
          isWanted: ({ fields }: EventEntry) => isMatch(narrowed, fields),
          ...(typeof saved === 'string' && {
            confirm: ({ stored }: EventEntry) => isSelectedByFilter(saved, stored()),
          }),
        };
        const resume_id = readResumeId(ctx.request, values, resumeAfter);
        await sendFeed(ctx, { kind: 'events', open: (costly) => openFeed(source, query, resume_id, costly) });
      },
    },
  ];
}
