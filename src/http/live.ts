import type { IncomingMessage } from 'node:http';
import type { Log } from '../db/database.js';
import { createFieldErrors, throwIfAny } from '../errors.js';
import { createEventQuery } from '../events/event-tail.js';
import type { LiveFeeds } from '../events/live-feeds.js';
import { createStreamQuery, streamFeedIdPattern } from '../events/stream-tail.js';
import { assertExists } from '../repositories/resources.js';
import { ancestorFields, eventIdPattern } from '../resources/event.js';
import { device, event, stream, streamOfAccount } from '../resources/index.js';
import { max_filter_identifier_length, text, textMatching } from '../schema/fields/text.js';
import { type FieldType, type Values, withDocumentation } from '../schema/fields.js';
import { describeIdentifier } from '../schema/resource.js';
import { buildListFilter, listParametersOf, parseQuery } from '../schema/validation.js';
import type { Endpoint, RequestContext } from './context.js';
import { createFeedSender } from './send-feed.js';

type QueryParameters = ReadonlyMap<string, FieldType>;

const resume = (pattern: RegExp, of: string, example: string): FieldType =>
  withDocumentation(
    textMatching(18, (id) => pattern.test(id), `the id of ${of}`, { pattern: pattern.source }),
    { about: 'Begins with what came after this one. `Last-Event-ID` takes precedence.', example },
  );
const eventParameters: QueryParameters = new Map([
  ...event.filters.flatMap(({ params }) => Object.entries(params)),
  ['after', resume(eventIdPattern, 'an event', '69214e6f0000000100')],
]);

const kind: [string, FieldType] = ['_t', listParametersOf(stream).get('_t') ?? text(3)];
const afterStream: [string, FieldType] = [
  'after',
  resume(streamFeedIdPattern, 'an entry of a live feed', '69214e6f0000000100'),
];
const identifierFilter = (about: string, example: string) =>
  withDocumentation(text(max_filter_identifier_length), { about, example });
const ofDeviceParameters: QueryParameters = new Map([kind, afterStream]);
const ofAccountParameters: QueryParameters = new Map([
  kind,
  ['device', listParametersOf(streamOfAccount).get('device') ?? text(max_filter_identifier_length)],
  ...ancestorFields.map((field): [string, FieldType] => {
    const name = field.slice('id_'.length);
    return [field, identifierFilter(`Only of devices below this ${name}.`, `${name}@demo`)];
  }),
  afterStream,
]);

const resuming =
  'Server-sent events: `id`, `event`, and `data` as one line of JSON, whatever `Accept` says. A comment comes at least every 15 s. `Last-Event-ID` or `after` resumes without gap or repetition. The event `overflow` ends the feed of a reader that is more than 1,000 entries or 1 MiB behind.';

/** Creates the endpoints of live feeds (reference/events.md#live-feeds). */
export function liveEndpoints(live: LiveFeeds, log: Log): Endpoint[] {
  const sendFeed = createFeedSender(live, log);
  const { events, streams } = live.sources;
  const shared = { method: 'get', scope: 'read' } as const;

  function sendStreams(call: RequestContext, given: Values, ofDevice?: string): Promise<void> {
    const after = readAfter(call.request, given, afterStream[1]);
    const ancestors: Record<string, string> = {};
    for (const field of ancestorFields) if (typeof given[field] === 'string') ancestors[field] = given[field];
    const sender = ofDevice ?? given.device;
    const query = createStreamQuery(call.account, {
      ancestors,
      ...(typeof sender === 'string' && { device: sender }),
      ...(typeof given._t === 'string' && { _t: given._t }),
    });
    return sendFeed(call, { kind: 'streams', source: streams, query, after });
  }

  return [
    {
      ...shared,
      operationId: 'followEvents',
      path: '/events/live/',
      tag: 'events',
      summary: 'Follow the events of the account',
      description: `${resuming} The name of an event is its \`type\`.`,
      query: eventParameters,
      result: { kind: 'feed', type: event },
      failures: ['badParameter'],
      async handle(call) {
        const given = parseQuery(call.query, eventParameters, (values, faults) => {
          for (const filter of event.filters) filter.check?.(values, faults);
        });
        const after = readAfter(call.request, given, eventParameters.get('after'));
        const query = createEventQuery(call.account, buildListFilter(event, given, call.now));
        await sendFeed(call, { kind: 'events', source: events, query, after });
      },
    },
    {
      ...shared,
      operationId: 'followStreamsOfDevice',
      path: '/devices/{device_id_developer}/streams/live/',
      pathParameters: { device_id_developer: describeIdentifier(device) },
      tag: 'streams',
      summary: 'Follow the streams of a device',
      description: `${resuming} The name of an event is \`stream\`.`,
      query: ofDeviceParameters,
      result: { kind: 'feed', type: stream },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        const given = parseQuery(call.query, ofDeviceParameters);
        const id = call.path.device_id_developer ?? '';
        await assertExists(call, device, id);
        await sendStreams(call, given, id);
      },
    },
    {
      ...shared,
      operationId: 'followStreams',
      path: '/streams/live/',
      tag: 'streams',
      summary: 'Follow the streams of the account',
      description: `${resuming} The name of an event is \`stream\`.`,
      query: ofAccountParameters,
      result: { kind: 'feed', type: stream },
      failures: ['badParameter'],
      async handle(call) {
        await sendStreams(call, parseQuery(call.query, ofAccountParameters));
      },
    },
  ];
}

/** Reads the id to resume at; the header is newer than the address. @throws AppError badParameter (4004) */
function readAfter({ headers }: IncomingMessage, given: Values, type: FieldType | undefined): string | undefined {
  const sent = headers['last-event-id'];
  if (typeof sent !== 'string' || sent === '') return typeof given.after === 'string' ? given.after : undefined;
  const faults = createFieldErrors();
  type?.query?.(sent, 'Last-Event-ID', faults);
  throwIfAny('badParameter', faults);
  return sent;
}
