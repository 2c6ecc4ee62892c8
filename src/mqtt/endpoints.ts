import type { Endpoint, RequestContext } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import { listChildren } from '../objects/select/lists.js';
import { connection, device, mqttcredentials, topic } from '../resources/index.js';
import { parseFields } from '../schema/body.js';
import { text } from '../schema/fields/text.js';
import { withDocumentation } from '../schema/fields.js';
import { describeBody, describeClosed } from '../schema/openapi/bodies.js';
import { body_limit_bytes } from '../schema/operation.js';
import { describeIdentifier, type ListedType } from '../schema/resource.js';
import { hashPassword } from './login/passwords.js';
import { endConnection } from './sessions/connection-list.js';
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
  return [...credentialsEndpoints(), ...topicEndpoints(), ...connectionEndpoints()];
}

/** The endpoints of the clients that are connected (reference/mqtt.md#connections). */
function connectionEndpoints(): Endpoint[] {
  const shared = { tag: 'mqtt', scope: 'admin' } as const;
  return [
    {
      ...shared,
      operationId: 'listConnections',
      path: '/mqtt/connections/',
      summary: 'List the clients that are connected to the broker',
      ...createListing(connection),
    },
    {
      ...shared,
      operationId: 'deleteConnection',
      method: 'delete',
      path: '/mqtt/connections/{client_id}/',
      pathParameters: {
        client_id: withDocumentation(text(256), { about: 'The `client_id` of the connection.', example: 'pump-1' }),
      },
      summary: 'End the connection of a client',
      result: { kind: 'status', success: 'deleted', message: 'connection ended' },
      handle: async (ctx) => endConnection(ctx, ctx.path.client_id ?? ''),
    },
  ];
}

async function loginOf({ body }: RequestContext): Promise<{ username: string; hash: string }> {
  const { username, password } = parseFields(mqttcredentials, body);
  return { username: String(username), hash: await hashPassword(String(password)) };
}

const bodyOf = (type: ListedType, updating = false) => ({
  schema: describeBody(type, false),
  updating,
  limit_bytes: body_limit_bytes,
});

function credentialsEndpoints(): Endpoint[] {
  return [
    {
      ...common,
      operationId: 'createCredentials',
      method: 'post',
      path: `${devicePath}credentials/`,
      summary: 'Give a device the credentials it logs in with',
      body: bodyOf(mqttcredentials),
      result: { kind: 'status', success: 'created', message: 'credentials created' },
      handle: async (ctx) => credentials.createCredentials(ctx, idOf(ctx), await loginOf(ctx)),
    },
    {
      ...common,
      operationId: 'updateCredentials',
      method: 'put',
      path: `${devicePath}credentials/`,
      summary: 'Change the credentials of a device',
      body: bodyOf(mqttcredentials, true),
      result: {
        kind: 'status',
        success: 'updated',
        message: 'credentials updated',
        details: describeClosed(
          'Username',
          'The login of a device.',
          { username: { type: 'string', description: 'The new username.', examples: ['pump-1'] } },
          { examples: [{ username: 'pump-1' }] },
        ),
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
      handle: async (ctx) => credentials.removeCredentials(ctx, idOf(ctx)),
    },
  ];
}

function topicEndpoints(): Endpoint[] {
  const nameOf = ({ body }: RequestContext) => String(parseFields(topic, body).name);
  return [
    {
      ...common,
      operationId: 'createTopic',
      method: 'post',
      path: `${devicePath}topics/`,
      summary: 'Let a device use a topic filter',
      body: bodyOf(topic),
      result: { kind: 'status', success: 'created', message: 'topic created' },
      handle: async (ctx) => credentials.createTopic(ctx, idOf(ctx), nameOf(ctx)),
    },
    {
      ...common,
      operationId: 'listTopics',
      scope: 'read',
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
      body: bodyOf(topic),
      result: { kind: 'status', success: 'deleted', message: 'topic deleted' },
      handle: async (ctx) => credentials.removeTopic(ctx, idOf(ctx), nameOf(ctx)),
    },
  ];
}
