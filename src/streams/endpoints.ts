import { AppError, throwIfAny } from '../errors.js';
import type { Endpoint, RequestContext } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import { sendLegacyText } from '../http/respond.js';
import type { Page } from '../objects/page.js';
import { listResources } from '../objects/select/lists.js';
import { device, stream, streamIdentity, streamOfAccount } from '../resources/index.js';
import type { StreamKind } from '../resources/stream.js';
import { integer } from '../schema/fields/number.js';
import { isPlainObject } from '../schema/fields/object.js';
import { choice } from '../schema/fields/text.js';
import { type Fields, type FieldType, type Schema, withDocumentation } from '../schema/fields.js';
import { createListParser, type ListRequest, listParametersOf } from '../schema/list-parameters.js';
import { describeBody, describeClosed } from '../schema/openapi/bodies.js';
import { receipt } from '../schema/openapi/responses.js';
import { parseQuery, type Query } from '../schema/query.js';
import { describeIdentifier } from '../schema/resource.js';
import { parseStreams, streamWithDevice } from './parse-streams.js';
import { parseXmlStreams } from './parse-xml.js';
import { type Submission, unknownDevice } from './senders.js';
import {
  findDeviceStreams,
  matchDeviceStreams,
  matchLastingStreams,
  removeStream,
  removeStreams,
  showStream,
} from './store.js';

const repetition = new Map([
  [
    'on_conflict',
    withDocumentation(choice('skip'), {
      about: 'skip: leaves streams out whose device has one of their kind with the same at.',
      example: 'skip',
    }),
  ],
]);
const oneObject = 'The body may also be one such object instead of an array.';
const ofDevice = '/devices/{device_id_developer}/streams/';
const metadata: Readonly<{ [param: string]: FieldType }> = {
  _m: withDocumentation(integer({ min: 1, max: 1 }), { about: 'The list has `metadata` too.', example: 1 }),
};
const removalQuery = listParametersOf(stream);
const oneStream = '/streams/{stream_id_developer}/';

const moment = (which: string): Schema => ({
  type: ['number', 'null'],
  format: 'double',
  description: `\`at\` of the ${which} stream on the page, in seconds since 1970-01-01 UTC; \`null\` on an empty page.`,
  examples: [1700000000.25],
});
const whole = (description: string): Schema => ({ type: 'integer', format: 'int64', description, examples: [1] });
const metadataSchema = describeClosed(
  'StreamListMetadata',
  'About the page, where `_m` asks for it.',
  {
    parameters: {
      type: 'object',
      additionalProperties: true,
      description: 'The parameters of the request, numbers as numbers.',
      examples: [{ _m: 1 }],
    },
    returned: whole('Number of streams on the page.'),
    took_ms: whole('Milliseconds until the answer began.'),
    at_first: moment('first'),
    at_last: moment('last'),
  },
  {
    examples: [{ parameters: { _m: 1 }, returned: 1, took_ms: 1, at_first: 1700000000.25, at_last: 1700000000.25 }],
  },
);

const ingestedSchema = describeClosed(
  'IngestedStreams',
  'With `on_conflict=skip` the numbers of streams, else empty.',
  {
    created: whole('Number of streams that were stored.'),
    skipped: whole('Number of streams that were left out.'),
  },
  { required: [], examples: [{}] },
);

const removalSchema = describeClosed(
  'StreamRemoval',
  'Empty, unless summaries were removed.',
  { summaries: whole('Number of hours without streams whose summaries were removed.') },
  { required: [], examples: [{}] },
);

/** Creates the endpoints for streams (reference/streams.md#sending, #listing, #deletion, #stream-identifiers). */
export function streamEndpoints(ingest: (submission: Submission) => Promise<boolean[]>): Endpoint[] {
  const parseRemoval = createListParser(stream, { params: removalQuery });
  const idOf = ({ path }: RequestContext) => path.device_id_developer ?? '';
  const shared = { tag: 'streams' } as const;
  const onDevice = { ...shared, path: ofDevice, pathParameters: { device_id_developer: describeIdentifier(device) } };
  const body = (items: Schema) => ({
    schema: { type: 'array', items, minItems: 1, maxItems: 1000, examples: [items.examples] },
    updating: false,
    shape: 'any' as const,
    parseXml: parseXmlStreams,
  });

  async function listStreams(ctx: RequestContext, request: ListRequest): Promise<Page> {
    const { device: id = isOfDevice(ctx) ? ctx.limit?.id_developer : undefined } = request.params;
    const within = await (typeof id === 'string' ? matchDeviceStreams(ctx, id) : matchLastingStreams(ctx));
    return listResources(ctx, stream, summarized(request), within);
  }
  const isOfDevice = ({ limit }: RequestContext) => limit?.plural === device.plural;
  const summarized = (request: ListRequest) => ({ ...request, summarize: request.params._m !== undefined });
  const listing = createListing(streamOfAccount, listStreams, { extra: metadata });

  return [
    {
      ...onDevice,
      operationId: 'createStreamsOfDevice',
      method: 'post',
      summary: 'Store 1 to 1,000 streams of a device',
      description: `All are stored, or none. ${oneObject}`,
      scope: 'stream',
      query: repetition,
      body: body(describeBody(stream, false)),
      result: { kind: 'status', success: 'created', message: 'stream created', details: ingestedSchema },
      async handle(ctx) {
        const skipsRepeated = isSkipping(ctx);
        const { entries, fieldOf } = parseStreams(ctx.takeJson(), { device: idOf(ctx) });
        // faults of the device concern the path, not an entry
        const fieldOfEntry = (index: number, field: string) => (field === 'device' ? field : fieldOf(index, field));
        const streams = { entries, fieldOf: fieldOfEntry, skipsRepeated };
        const stored = await ingest({ ...streams, ...senderOf(ctx) }).catch(pathNotFound);
        const created = stored.filter(Boolean).length;
        return skipsRepeated ? { details: { created, skipped: stored.length - created } } : undefined;
      },
    },
    {
      ...onDevice,
      operationId: 'listStreamsOfDevice',
      summary: 'List the streams of a device',
      scope: 'read',
      ...createListing(
        stream,
        async (ctx, request) =>
          listResources(ctx, stream, summarized(request), await findDeviceStreams(ctx, idOf(ctx))),
        { extra: metadata },
      ),
      result: { kind: 'list', type: stream, metadata: metadataSchema },
    },
    {
      ...onDevice,
      operationId: 'deleteStreamsOfDevice',
      method: 'delete',
      summary: 'Delete the streams of a device that match',
      description:
        'Without parameters all are deleted. The parameters may stand in a JSON object as the body instead, each as a text, a number or a boolean. Where `max`, `offset`, `sort` or `order` is given, that part of the list is deleted.',
      scope: 'write',
      isCostly: true,
      query: removalQuery,
      body: { updating: false, shape: 'optional' },
      result: { kind: 'status', success: 'deleted', message: 'stream deleted', details: removalSchema },
      async handle(ctx) {
        const request = parseRemoval([...ctx.query, ...queryOf(ctx.takeJson())], ctx.now);
        const summaries = await removeStreams(ctx, idOf(ctx), request);
        return summaries > 0 ? { details: { summaries } } : undefined;
      },
    },
    {
      ...shared,
      operationId: 'listStreams',
      path: '/streams/',
      summary: 'List the streams of the account',
      description: 'Keys that are limited to something above devices have to name a device.',
      scope: 'read',
      ...listing,
      result: { kind: 'list', type: stream, metadata: metadataSchema },
      handle(ctx) {
        const { limit, query } = ctx;
        const isNarrow = limit === undefined || isOfDevice(ctx);
        if (!isNarrow && !query.some(([param]) => param === 'device')) throw new AppError('forbidden');
        return listing.handle(ctx);
      },
    },
    ...oneStreamEndpoints(),
    former('createStreams', '/streams/', 'str', 'Store streams as devices of the former platform send them'),
    former(
      'createStatusStreams',
      '/status/',
      'sta',
      'Store status streams as devices of the former platform send them',
    ),
  ];

  /** Old firmware expects exactly this response (reference/streams.md#legacy-endpoints). */
  function former(operationId: string, path: string, _t: StreamKind, summary: string): Endpoint {
    return {
      ...shared,
      operationId,
      method: 'post',
      path,
      summary,
      description: `All are stored, or none. ${oneObject} \`_t\` may be given as \`${_t}\`.`,
      scope: 'stream',
      query: repetition,
      body: body(describeFormer()),
      result: { kind: 'plain', schema: receipt },
      legacy: { unauthorized: 'Not authorized: apikey not found' },
      async handle(ctx) {
        const skipsRepeated = isSkipping(ctx);
        await ingest({ ...parseStreams(ctx.takeJson(), { _t }), ...senderOf(ctx), skipsRepeated });
        sendLegacyText(ctx.response, 'OK');
      },
    };
  }
}

function isSkipping({ query }: RequestContext): boolean {
  return parseQuery(query, repetition).on_conflict === 'skip';
}

const senderOf = ({ account, limit, user, now }: RequestContext) => ({ account, limit, user, now });

/** A stream that names its device; the path decides `_t`. */
function describeFormer(): Schema {
  const { _t, ...fields }: Fields = streamWithDevice.fields;
  const { _t: kind, ...example } = stream.example;
  return describeBody(
    { ...streamWithDevice, fields, title: 'StreamWithDevice', example: { device: 'Pump@demo', ...example } },
    false,
  );
}

/** Creates the endpoints that show and delete one stream (reference/streams.md#stream-identifiers). */
function oneStreamEndpoints(): Endpoint[] {
  const idOf = ({ path }: RequestContext) => path.stream_id_developer ?? '';
  const pathParameters = { stream_id_developer: streamIdentity.type };
  return [
    {
      operationId: 'getStream',
      method: 'get',
      path: oneStream,
      pathParameters,
      tag: 'streams',
      summary: 'Show a stream',
      scope: 'read',
      result: { kind: 'object', type: stream },
      handle: async (ctx) => ({ document: await showStream(ctx, idOf(ctx)) }),
    },
    {
      operationId: 'deleteStream',
      method: 'delete',
      path: oneStream,
      pathParameters,
      tag: 'streams',
      summary: 'Delete a stream',
      scope: 'write',
      result: { kind: 'status', success: 'deleted', message: 'stream deleted' },
      async handle(ctx) {
        await removeStream(ctx, idOf(ctx));
      },
    },
  ];
}

/** Reports an unknown device in the path as 404 instead of a fault of the body. */
function pathNotFound(error: unknown): never {
  if (error instanceof AppError && error.details.device === unknownDevice) throw new AppError('notFound');
  throw error;
}

/** Converts filters of a body to a query (reference/streams.md#deletion). @throws AppError badParameter (4004) */
function queryOf(body: unknown): Query {
  if (body === undefined) return [];
  if (!isPlainObject(body)) throw new AppError('badParameter', { body: 'must be a JSON object' });
  const parameters = Object.entries(body);
  const structured = parameters.filter(([, value]) => typeof value === 'object');
  const faults = structured.map(([param]) => [param, 'must be a text, a number or a boolean']);
  throwIfAny('badParameter', Object.fromEntries(faults));
  return parameters.map(([param, value]) => [param, String(value)] as const);
}
