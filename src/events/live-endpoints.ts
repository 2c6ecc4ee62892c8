import { limitRequest } from '../db/reach.js';
import type { Endpoint } from '../http/context.js';
import { openFeed } from '../http/live/feed.js';
import { createResumeParameter, feedDescription, readResumeId } from '../http/live/resume.js';
import type { SendFeed } from '../http/live/send-feed.js';
import { eventIdPattern } from '../resources/event.js';
import { event } from '../resources/index.js';
import type { FieldType } from '../schema/fields.js';
import { buildListFilter, filterParametersOf } from '../schema/list-parameters.js';
import { parseQuery } from '../schema/query.js';
import { createEventQuery, type EventFeedSource } from './event-tail.js';

const after = createResumeParameter(eventIdPattern, 'an event');
const parameters: ReadonlyMap<string, FieldType> = new Map([...filterParametersOf(event), ['after', after]]);

/** Creates the endpoint of the live feed of events (reference/events.md#live-feeds). */
export function liveEventEndpoints(source: EventFeedSource, sendFeed: SendFeed): Endpoint[] {
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
        const filter = buildListFilter(event, values, ctx.now);
        const { filter: narrowed } = limitRequest(ctx.limit, event, { filter });
        const query = createEventQuery(ctx.account, narrowed);
        const resume_id = readResumeId(ctx.request, values, after);
        await sendFeed(ctx, { kind: 'events', open: (costly) => openFeed(source, query, resume_id, costly) });
      },
    },
  ];
}
