import type { Endpoint, RequestContext } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import { listChildren } from '../objects/lists.js';
import { device, mqttcredentials, topic } from '../resources/index.js';
import { parseFields } from '../schema/body.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { body_limit_bytes } from '../schema/operation.js';
import { describeIdentifier } from '../schema/resource.js';
import { hashPassword } from './login/passwords.js';
import * as credentials from './store/credentials.js';

const devicePath = '/mqttdevices/{device_id_developer}/';

const common = {
  tag: 'mqtt',
  scope: 'write',
  pathParameters: { device_id_developer: describeIdentifier(device) },
} as const;
const idOf = ({ path }: RequestContext) => path.device_id_developer ?? '';

/** The endpoints of a device's MQTT credentials and topics (reference/mqtt.md#credentials, reference/mqtt.md#topics). */
export function mqttDeviceEndpoints(): Endpoint[] {
  return [...credentialsEndpoints(), ...topicEndpoints()];
}

async function loginOf({ body }: RequestContext): Promise<{ username: string; hash: string }> {
  const { username, password } = parseFields(mqttcredentials, body);
  return { username: String(username), hash: await hashPassword(String(password)) };
}

function credentialsEndpoints(): Endpoint[] {
  const credentialsBody = (updating: boolean) => ({
    schema: describeBody(mqttcredentials, false),
    updating,
    limit_bytes: body_limit_bytes,
  });
  return [
    {
      ...common,
      operationId: 'createCredentials',
      method: 'post',
      path: `${devicePath}credentials/`,
      summary: 'Give a device the credentials it logs in with',
      body: credentialsBody(false),
      result: { kind: 'status', success: 'created', message: 'credentials created' },
      async handle(ctx) {
        await credentials.createCredentials(ctx, idOf(ctx), await loginOf(ctx));
      },
    },
    {
      ...common,
      operationId: 'updateCredentials',
      method: 'put',
      path: `${devicePath}credentials/`,
      summary: 'Change the credentials of a device',
      body: credentialsBody(true),
      result: {
        kind: 'status',
        success: 'updated',
        message: 'credentials updated',
        details: {
          title: 'Username',
          type: 'object',
          description: 'The login of a device.',
          properties: { username: { type: 'string', description: 'The new username.', examples: ['pump-1'] } },
          required: ['username'],
          additionalProperties: false,
          examples: [{ username: 'pump-1' }],
        },
      },
      async handle(ctx) {
        const login = await loginOf(ctx);
        await credentials.updateCredentials(ctx, idOf(ctx), login);
        return { details: { username: login.username } };
      },
    },
    {
      ...common,
      operationId: 'deleteCredentials',
      method: 'delete',
      path: devicePath,
      summary: 'Delete the credentials of a device; its topics stay',
      result: { kind: 'status', success: 'deleted', message: 'credentials deleted' },
      async handle(ctx) {
        await credentials.removeCredentials(ctx, idOf(ctx));
      },
    },
  ];
}

function topicEndpoints(): Endpoint[] {
  const topicBody = { schema: describeBody(topic, false), updating: false, limit_bytes: body_limit_bytes };
  return [
    {
      ...common,
      operationId: 'createTopic',
      method: 'post',
      path: `${devicePath}topics/`,
      summary: 'Let a device use a topic filter',
      body: topicBody,
      result: { kind: 'status', success: 'created', message: 'topic created' },
      async handle(ctx) {
        const values = parseFields(topic, ctx.body);
        await credentials.createTopic(ctx, idOf(ctx), String(values.name));
      },
    },
    {
      ...common,
      operationId: 'listTopics',
      scope: 'read',
      method: 'get',
      path: `${devicePath}topics/`,
      summary: 'List the topic filters of a device',
      ...createListing(topic, (ctx, request) =>
        listChildren(ctx, topic, request, { parent: device, field: 'device', id: idOf(ctx) }),
      ),
    },
    {
      ...common,
      operationId: 'deleteTopic',
      method: 'delete',
      path: `${devicePath}topics/`,
      summary: 'Take a topic filter from a device',
      body: topicBody,
      result: { kind: 'status', success: 'deleted', message: 'topic deleted' },
      async handle(ctx) {
        const values = parseFields(topic, ctx.body);
        await credentials.removeTopic(ctx, idOf(ctx), String(values.name));
      },
    },
  ];
}
