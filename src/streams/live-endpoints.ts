import type { Endpoint, RequestContext } from '../http/context.js';
import { openFeed } from '../http/live/feed.js';
import { createResumeParameter, feedDescription, readResumeId } from '../http/live/resume.js';
import type { SendFeed } from '../http/live/send-feed.js';
import { assertExists } from '../objects/resources.js';
import { ancestorFields } from '../resources/event.js';
import { device, stream, streamOfAccount } from '../resources/index.js';
import { max_identifier_length, text } from '../schema/fields/text.js';
import { type FieldType, type Values, withDocumentation } from '../schema/fields.js';
import { listParametersOf } from '../schema/list-parameters.js';
import { parseQuery } from '../schema/query.js';
import { describeIdentifier } from '../schema/resource.js';
import { createStreamQuery, type StreamFeedSource, streamFeedIdPattern } from './stream-tail.js';

const after = createResumeParameter(streamFeedIdPattern, 'an entry of a live feed');
const kind: [string, FieldType] = ['_t', listParametersOf(stream).get('_t') ?? text(3)];
const ofDeviceParameters: ReadonlyMap<string, FieldType> = new Map([kind, ['after', after]]);
const ofAccountParameters: ReadonlyMap<string, FieldType> = new Map([
  kind,
  ['device', listParametersOf(streamOfAccount).get('device') ?? text(max_identifier_length)],
  ...ancestorFields.map((field): [string, FieldType] => {
    const name = field.slice('id_'.length);
    const documentation = { about: `Only of devices below this ${name}.`, example: `${name}@demo` };
    return [field, withDocumentation(text(max_identifier_length), documentation)];
  }),
  ['after', after],
]);

/** Creates the endpoints of live feeds of streams (reference/events.md#live-feeds). */
export function liveStreamEndpoints(source: StreamFeedSource, sendFeed: SendFeed): Endpoint[] {
  const shared = {
    method: 'get',
    tag: 'streams',
    description: `${feedDescription} The name of an event is \`stream\`.`,
    scope: 'read',
    isCostly: true,
    result: { kind: 'feed', type: stream },
  } as const;

  function sendStreams(ctx: RequestContext, values: Values, device = values.device): Promise<void> {
    const ancestors: Record<string, string> = {};
    for (const field of ancestorFields) if (typeof values[field] === 'string') ancestors[field] = values[field];
    const query = createStreamQuery(ctx.account, {
      limit: ctx.limit,
      ancestors,
      ...(typeof device === 'string' && { device }),
      ...(typeof values._t === 'string' && { _t: values._t }),
    });
    const resume_id = readResumeId(ctx.request, values, after);
    return sendFeed(ctx, { kind: 'streams', open: (costly) => openFeed(source, query, resume_id, costly) });
  }

  return [
    {
      ...shared,
      operationId: 'followStreamsOfDevice',
      path: '/devices/{device_id_developer}/streams/live/',
      pathParameters: { device_id_developer: describeIdentifier(device) },
      summary: 'Follow the streams of a device',
      query: ofDeviceParameters,
      async handle(ctx) {
        const values = parseQuery(ctx.query, ofDeviceParameters);
        const id = ctx.path.device_id_developer ?? '';
        await assertExists(ctx, device, id);
        await sendStreams(ctx, values, id);
      },
    },
    {
      ...shared,
      operationId: 'followStreams',
      path: '/streams/live/',
      summary: 'Follow the streams of the account',
      query: ofAccountParameters,
      async handle(ctx) {
        await sendStreams(ctx, parseQuery(ctx.query, ofAccountParameters));
      },
    },
  ];
}
