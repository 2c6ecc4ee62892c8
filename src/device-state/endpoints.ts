import { hash } from 'node:crypto';
import type { Answer, Endpoint, RequestContext } from '../http/context.js';
import { parseIfMatch } from '../http/entity-tags.js';
import { assertExists } from '../objects/resources.js';
import { device } from '../resources/index.js';
import { integer, recordedTime } from '../schema/fields/number.js';
import { type FieldType, type Schema, withDocumentation } from '../schema/fields.js';
import { describeClosed } from '../schema/openapi/bodies.js';
import { parseQuery } from '../schema/query.js';
import { describeIdentifier } from '../schema/resource.js';
import { type DeviceState, mergeDesired, mergeReported } from './changes.js';
import { buildDelta } from './delta.js';
import { checkPatch } from './rules.js';
import { type ChangeState, findState } from './store.js';

const side = (about: string, example: object): Schema => ({
  type: 'object',
  additionalProperties: true,
  description: about,
  examples: [example],
});
const version = (about: string): Schema => withDocumentation(integer({ min: 0 }), { about, example: 1 }).schema;
const time = (about: string): Schema => withDocumentation(recordedTime(), { about }).schema;

const stateSchema = describeClosed(
  'DeviceState',
  'The state of a device.',
  {
    desired: side('What the device shall be.', { interval: 60 }),
    reported: side('What the device says it is.', { interval: 30 }),
    delta: side('The part of `desired` that the device has neither reported nor rejected.', { interval: 60 }),
    desired_version: version('Number of changes of `desired`.'),
    reported_version: version('Number of reports.'),
    desired_at: time('Time of the last change of `desired`; absent before the first.'),
    reported_at: time('Time of the last report; absent before the first.'),
  },
  {
    required: ['desired', 'reported', 'delta', 'desired_version', 'reported_version'],
    examples: [
      {
        ...{ desired: { interval: 60 }, reported: { interval: 30 }, delta: { interval: 60 } },
        ...{ desired_version: 1, reported_version: 1 },
      },
    ],
    xml: { name: 'response' },
  },
);

/** The body of a merge patch. */
function describePatch(title: string, example: object): Schema {
  return {
    title,
    type: 'object',
    description: 'A merge patch (RFC 7386).',
    additionalProperties: true,
    examples: [example],
  };
}

const path = '/devices/{device_id_developer}/state/';
const versions: ReadonlyMap<string, FieldType> = new Map([
  [
    'version',
    withDocumentation(integer({ min: 0 }), { about: 'The `desired_version` that must be stored.', example: 1 }),
  ],
]);

export const stateUpdated = {
  kind: 'status',
  success: 'updated',
  message: 'state updated',
  details: stateSchema,
  hasEntityTag: true,
} as const;

/** Answers with the state of a device and its entity tag. */
export function showState({ response }: RequestContext, state: DeviceState): Answer {
  const { desired, reported, desired_version, reported_version, desired_at, reported_at } = state;
  const delta = buildDelta(desired, reported);
  const details = { desired, reported, delta, desired_version, reported_version, desired_at, reported_at };
  response.setHeader('ETag', `"${desired_version}.${hash('sha1', JSON.stringify(details), 'base64url')}"`);
  return { details };
}

const shared = { tag: 'devices', pathParameters: { device_id_developer: describeIdentifier(device) } } as const;
const findDevice = (ctx: RequestContext) => assertExists(ctx, device, ctx.path.device_id_developer ?? '');

/** Describes a body that is merged into a side of a state. */
const bodyOf = (title: string, interval: number) =>
  ({ schema: describePatch(title, { interval }), updating: true }) as const;

/** Creates the endpoints of the state of devices (reference/device-state.md). */
export function stateEndpoints(changeState: ChangeState): Endpoint[] {
  return [
    {
      ...shared,
      operationId: 'getStateOfDevice',
      method: 'get',
      path,
      summary: 'Show what a device shall be and what it says it is',
      scope: 'read',
      isForDevices: true,
      result: { kind: 'plain', schema: stateSchema, hasEntityTag: true },
      handle: async (ctx) => showState(ctx, await findState(ctx.store.db, (await findDevice(ctx))._id)),
    },
    {
      ...shared,
      operationId: 'updateDesiredState',
      method: 'patch',
      path,
      summary: 'Change what a device shall be',
      description:
        'The body is merged into `desired` (RFC 7386): `null` removes a member. `configs` is not changed here.',
      scope: 'write',
      query: versions,
      body: bodyOf('DesiredStatePatch', 60),
      result: stateUpdated,
      async handle(ctx) {
        const { version } = parseQuery(ctx.query, versions);
        const accepted = parseIfMatch(ctx.request.headers['if-match'])(version as number | undefined);
        checkPatch('desired', ctx.body);
        const node = await findDevice(ctx);
        return showState(ctx, await changeState(node, (state) => mergeDesired(state, ctx.body, ctx, accepted)));
      },
    },
    {
      ...shared,
      operationId: 'updateReportedState',
      method: 'patch',
      path: `${path}reported/`,
      summary: 'Report what a device is',
      description: 'The body is merged into `reported` (RFC 7386): `null` removes a member.',
      scope: 'write',
      isForDevices: true,
      body: bodyOf('ReportedStatePatch', 30),
      result: stateUpdated,
      async handle(ctx) {
        checkPatch('reported', ctx.body);
        const node = await findDevice(ctx);
        return showState(ctx, await changeState(node, (state) => mergeReported(state, ctx.body, ctx)));
      },
    },
  ];
}
