import { insertIntoFreeSlot } from '../db/free-slot.js';
import { AppError } from '../errors.js';
import { createSelection, toBulkAnswer } from '../http/bulk-endpoints.js';
import type { Answer, Endpoint, RequestContext } from '../http/context.js';
import { countEndpoint } from '../http/count-endpoint.js';
import { createListing } from '../http/list-request.js';
import { resourceEndpoints } from '../http/resource-endpoints.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { assertExists, showResource } from '../objects/resources.js';
import { listResources } from '../objects/select/lists.js';
import { findOwnedBeside } from '../objects/select/owned-objects.js';
import { createResource } from '../objects/write/create.js';
import { alarmId } from '../resources/alarm.js';
import { max_rules } from '../resources/alarm-rule.js';
import { alarm, alarmrule, device } from '../resources/index.js';
import { text } from '../schema/fields/text.js';
import { type Values, withDocumentation } from '../schema/fields.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { describeIdentifier } from '../schema/resource.js';
import { getId } from '../serialize/bson.js';
import { parseAlarmUpdate, showAlarm, updateAlarm, updateMatchingAlarms } from './alarms.js';
import type { RuleSets } from './rule-sets.js';

const onePath = '/alarms/{alarm_id}/';
const ofAlarm = { alarm_id: withDocumentation(text(36), { about: 'The `id` of the alarm.', example: alarmId }) };
const shared = { tag: 'alarms' } as const;
const idOf = ({ path }: RequestContext) => path.alarm_id ?? '';

/** Creates the endpoints of alarm rules and alarms (reference/alarms.md#operations). */
export function alarmEndpoints(ruleSets: RuleSets): Endpoint[] {
  return [...ruleEndpoints(ruleSets), countEndpoint(alarm), ...listEndpoints(), ...alarmOperations()];
}

/** The operations of rules; what this process changes takes effect in it at once. */
function ruleEndpoints({ forget }: RuleSets): Endpoint[] {
  const endpoints = resourceEndpoints(alarmrule, {
    create: async (ctx, values) => ({ id: await createRule(ctx, values) }),
    show: showRule,
  });
  return endpoints.map((endpoint) =>
    endpoint.method === 'get'
      ? endpoint
      : {
          ...endpoint,
          async handle(ctx): Promise<Answer | undefined> {
            try {
              return (await endpoint.handle(ctx)) ?? undefined;
            } finally {
              forget(ctx.account);
            }
          },
        },
  );
}

function listEndpoints(): Endpoint[] {
  const newestFirst = { direction: -1 } as const;
  return [
    {
      ...shared,
      operationId: 'listAlarms',
      path: '/alarms/',
      summary: 'List alarms, newest first',
      scope: 'read',
      ...createListing(alarm, undefined, newestFirst),
    },
    {
      ...shared,
      operationId: 'listAlarmsOfDevice',
      path: '/devices/{device_id_developer}/alarms/',
      pathParameters: { device_id_developer: describeIdentifier(device) },
      summary: 'List the alarms of a device, newest first',
      scope: 'read',
      ...createListing(
        alarm,
        async (ctx, request) => {
          const device_id = ctx.path.device_id_developer ?? '';
          // alarms outlive their device
          await assertExists(ctx, device, device_id);
          return listResources(ctx, alarm, request, { device: device_id });
        },
        newestFirst,
      ),
    },
  ];
}

function alarmOperations(): Endpoint[] {
  const schema = { ...describeBody(alarm, true), examples: [{ state: 'acknowledged', note: 'Valve replaced' }] };
  const body = { schema, updating: true };
  const selection = createSelection(alarm);
  return [
    {
      ...shared,
      operationId: 'getAlarm',
      method: 'get',
      path: onePath,
      pathParameters: ofAlarm,
      summary: 'Show an alarm',
      scope: 'read',
      result: { kind: 'object', type: alarm },
      handle: async (ctx) => ({ document: await showAlarm(ctx, idOf(ctx)) }),
    },
    {
      ...shared,
      operationId: 'updateAlarm',
      method: 'put',
      path: onePath,
      pathParameters: ofAlarm,
      summary: 'Acknowledge or close an alarm, or write a note',
      scope: 'write',
      body,
      result: { kind: 'status', success: 'updated', message: 'Alarm updated', details: alarm },
      handle: async (ctx) => ({ document: await updateAlarm(ctx, idOf(ctx), parseAlarmUpdate(ctx.body)) }),
    },
    {
      ...shared,
      ...selection.operation,
      operationId: 'updateManyAlarms',
      method: 'patch',
      path: '/alarms/',
      summary: 'Acknowledge or close all alarms that match',
      body,
      result: { kind: 'status', success: 'updated', message: 'Alarm updated', details: selection.details },
      async handle(ctx) {
        const request = selection.parse(ctx.query, ctx.now);
        return toBulkAnswer(await updateMatchingAlarms(ctx, request, parseAlarmUpdate(ctx.body)));
      },
    },
  ];
}

/**
 * Creates a rule in a free slot of the account. @returns its identifier
 * @throws AppError invalid (4003), also beyond `max_rules`
 */
async function createRule(ctx: OperationContext, values: Values): Promise<string> {
  const insert = (slot: number) => createResource(ctx, alarmrule, { ...values, slot });
  const rules = ctx.store.db.collection(alarmrule.plural);
  return insertIntoFreeSlot(rules, { account: ctx.account }, 'alarm rules of an account', insert, max_rules);
}

/** Shows a rule, unless it is about what is beside the limit of the key. @throws AppError notFound (4041) */
async function showRule(ctx: OperationContext, id: string): Promise<Bson> {
  const document = await showResource(ctx, alarmrule, id);
  const _id = getId(document, '_id');
  if ((await findOwnedBeside(ctx, alarmrule)).some((beside) => beside.equals(_id))) throw new AppError('notFound');
  return document;
}
