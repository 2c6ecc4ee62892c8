import { limitFilter } from '../db/reach.js';
import type { Endpoint } from '../http/context.js';
import { openFeed } from '../http/live/feed.js';
import { createResumeParameter, feedDescription, readResumeId } from '../http/live/resume.js';
import type { SendFeed } from '../http/live/send-feed.js';
import { assertFilterApplies } from '../objects/saved-filters.js';
import { afterEventPattern } from '../resources/event.js';
import { event } from '../resources/index.js';
import { identifierText } from '../schema/fields/text.js';
import { type FieldType, withDocumentation } from '../schema/fields.js';
import { isMatch } from '../schema/filters.js';
import { buildListFilter, filterParametersOf } from '../schema/list-parameters.js';
import { parseQuery } from '../schema/query.js';
import type { IsSelectedByFilter } from './device-filter.js';
import type { EventEntry, EventFeedSource } from './event-tail.js';

const after = createResumeParameter(afterEventPattern, 'an event, or 0');
const filter = withDocumentation(identifierText(), {
  about: 'Only events of devices, and only of those that this saved filter selects.',
  example: 'Silent pumps@demo',
  references: 'filters',
});
const parameters: ReadonlyMap<string, FieldType> = new Map([
  ...filterParametersOf(event),
  ['filter', filter],
  ['after', after],
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
        const resume_id = readResumeId(ctx.request, values, after);
        await sendFeed(ctx, { kind: 'events', open: (costly) => openFeed(source, query, resume_id, costly) });
      },
    },
  ];
}
