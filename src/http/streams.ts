import { AppError } from '../errors.js';
import { listChildren, listResources } from '../repositories/lists.js';
import { removeStream, removeStreams, showStream } from '../repositories/streams.js';
import { device, stream, streamOfAccount } from '../resources/index.js';
import type { StreamKind } from '../resources/stream.js';
import { integer } from '../schema/fields/number.js';
import { isPlainObject } from '../schema/fields/object.js';
import { choice } from '../schema/fields/text.js';
import { type FieldType, type Schema, withDefault } from '../schema/fields.js';
import { describeBody, describeFilters } from '../schema/openapi/bodies.js';
import { body_limit_bytes, type Operation } from '../schema/operation.js';
import { createListParser, type ListRequest, listParametersOf, type Query } from '../schema/validation.js';
import { type Ingest, unknownDevice } from '../telemetry/ingest.js';
import { parseStreams, streamWithDevice } from '../telemetry/parse-streams.js';
import { parseXmlStreams } from '../telemetry/parse-xml.js';
import type { Endpoint, EndpointDeps, RequestContext } from './context.js';
import { createResponder, sendLegacyText, sendSuccess } from './respond.js';

const ofDevice = '/devices/{device_id_developer}/streams/';
const oneStream = '/streams/{stream_id_developer}/';
const metadata: Readonly<{ [param: string]: FieldType }> = { _m: integer({ min: 1, max: 1 }) };

const moment = { type: ['number', 'null'] };
const metadataSchema: Schema = {
  type: 'object',
  description: 'About the page, where `_m` asks for it.',
  properties: {
    parameters: { type: 'object' },
    returned: { type: 'integer' },
    took_ms: { type: 'integer' },
    at_first: moment,
    at_last: moment,
  },
  required: ['parameters', 'returned', 'took_ms', 'at_first', 'at_last'],
};

/** Creates the endpoints for streams (reference/streams.md#sending, #listing, #deletion, #stream-identifiers). */
export function streamEndpoints(deps: EndpointDeps, record: Ingest): Endpoint[] {
  const { yieldTurn } = deps;
  const respond = createResponder(yieldTurn, stream, { tagged: false });
  const parse = createListParser(stream, metadata);
  const parseOfAccount = createListParser(streamOfAccount, metadata);
  const parseRemoval = createListParser(stream);
  const idOf = ({ path }: RequestContext) => path.device_id_developer ?? '';
  const shared = { tag: 'streams' } as const;
  const body = (schema: Schema) => ({
    schema: { anyOf: [schema, { type: 'array', items: schema, minItems: 1, maxItems: 1000 }] },
    updating: false,
    limit_bytes: body_limit_bytes,
    shape: 'any' as const,
    parseXml: parseXmlStreams,
  });

  const summarized = (request: ListRequest) => ({ ...request, summarize: request.params._m !== undefined });

  return [
    {
      ...shared,
      method: 'post',
      path: ofDevice,
      summary: 'Store one stream of a device, or up to 1,000',
      scope: 'stream',
      body: body(describeBody(stream, false)),
      result: { kind: 'status', status: 200, code: 2001, message: 'stream created' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const { account, user } = call.principal;
        const sent = parseStreams(call.takeJson(), { device: idOf(call) });
        // faults of the device concern the path, not an entry
        const fieldOf = (index: number, field: string) => (field === 'device' ? field : sent.fieldOf(index, field));
        await record({ ...sent, fieldOf, account, user, now: call.now }).catch(pathNotFound);
        sendSuccess(call, 2001, 'stream created');
      },
    },
    {
      ...shared,
      method: 'get',
      path: ofDevice,
      summary: 'List the streams of a device',
      scope: 'read',
      query: new Map([...listParametersOf(stream), ...Object.entries(metadata)]),
      result: { kind: 'list', type: stream, metadata: metadataSchema },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        const request = summarized(parse(call.query, call.now));
        const page = await listChildren(call, stream, request, { parent: device, field: 'device', id: idOf(call) });
        await respond.list(call, page);
      },
    },
    {
      ...shared,
      method: 'delete',
      path: ofDevice,
      summary: 'Delete the streams of a device that match; the filters may stand in a JSON body too',
      scope: 'write',
      query: listParametersOf(stream),
      body: {
        schema: describeFilters(listParametersOf(stream)),
        updating: false,
        limit_bytes: body_limit_bytes,
        shape: 'optional',
      },
      result: { kind: 'status', status: 200, code: 2004, message: 'stream deleted' },
      failures: ['badParameter', 'notFound', 'tooLarge'],
      async handle(call) {
        const request = parseRemoval([...call.query, ...queryOf(call.takeJson())], call.now);
        await removeStreams(call, idOf(call), request);
        sendSuccess(call, 2004, 'stream deleted');
      },
    },
    {
      ...shared,
      method: 'get',
      path: '/streams/',
      summary: 'List the streams of the account',
      scope: 'read',
      query: new Map([...listParametersOf(streamOfAccount), ...Object.entries(metadata)]),
      result: { kind: 'list', type: stream, metadata: metadataSchema },
      failures: ['badParameter'],
      async handle(call) {
        const request = summarized(parseOfAccount(call.query, call.now));
        await respond.list(call, await listResources(call, stream, request));
      },
    },
    ...oneStreamEndpoints(deps),
    former('/streams/', 'str', 'Store streams as devices of the former platform send them'),
    former('/status/', 'sta', 'Store status streams as devices of the former platform send them'),
  ];

  /** Old firmware expects exactly this response (reference/streams.md#legacy-endpoints). */
  function former(path: string, _t: StreamKind, summary: string): Endpoint {
    const answer: Operation['result'] = {
      kind: 'plain',
      schema: { type: 'object', properties: { response: { const: 'OK' } }, required: ['response'] },
    };
    const fields = { ...streamWithDevice.fields, _t: withDefault(choice(_t), _t) };
    return {
      ...shared,
      method: 'post',
      path,
      summary,
      scope: 'stream',
      body: body(describeBody({ ...streamWithDevice, name: _t, fields }, false)),
      result: answer,
      legacy401: 'Not authorized: apikey not found',
      failures: ['badJson', 'badParameter', 'invalid', 'tooLarge'],
      async handle(call) {
        const { account, user } = call.principal;
        await record({ ...parseStreams(call.takeJson(), { _t }), account, user, now: call.now });
        sendLegacyText(call.response, 'OK');
      },
    };
  }
}

/** Show and delete one stream (reference/streams.md#stream-identifiers). */
function oneStreamEndpoints({ yieldTurn }: EndpointDeps): Endpoint[] {
  const respond = createResponder(yieldTurn, stream, { tagged: false });
  const idOf = ({ path }: RequestContext) => path.stream_id_developer ?? '';
  return [
    {
      method: 'get',
      path: oneStream,
      tag: 'streams',
      summary: 'Show a stream',
      scope: 'read',
      result: { kind: 'object', type: stream, untagged: true },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        await respond.object(call, await showStream(call, idOf(call)));
      },
    },
    {
      method: 'delete',
      path: oneStream,
      tag: 'streams',
      summary: 'Delete a stream',
      scope: 'write',
      result: { kind: 'status', status: 200, code: 2004, message: 'stream deleted' },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        await removeStream(call, idOf(call));
        sendSuccess(call, 2004, 'stream deleted');
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
function queryOf(given: unknown): Query {
  if (given === undefined) return [];
  if (!isPlainObject(given)) throw new AppError('badParameter', { body: 'must be a JSON object' });
  return Object.entries(given)
    .filter(([, value]) => value !== null)
    .map(([param, value]) => {
      if (typeof value === 'object')
        throw new AppError('badParameter', { [param]: 'must be a text, a number or a boolean' });
      return [param, String(value)] as const;
    });
}
