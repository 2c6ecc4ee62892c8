import type { Endpoint, EndpointDeps, RequestContext } from '../http/context.js';
import { parseListRequest } from '../http/list-request.js';
import { createResponder, sendStatus, sendSuccess } from '../http/respond.js';
import type { YieldTurn } from '../http/yield-queue.js';
import { listChildren } from '../objects/lists.js';
import { device, mqttcredentials, topic } from '../resources/index.js';
import { createListQueryParser, listQueryOf } from '../schema/list-query.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { body_limit_bytes } from '../schema/operation.js';
import { describeIdentifier } from '../schema/resource.js';
import { parseFields } from '../schema/validation.js';
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
export function mqttDeviceEndpoints({ yieldTurn }: EndpointDeps): Endpoint[] {
  return [...credentialsEndpoints(), ...topicEndpoints(yieldTurn)];
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
      result: { kind: 'status', status: 200, code: 2001, message: 'credentials created' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        await credentials.createCredentials(call, idOf(call), await loginOf(call));
        sendSuccess(call, 2001, 'credentials created');
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
        status: 200,
        code: 2005,
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
      failures: ['noBody', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const login = await loginOf(call);
        await credentials.updateCredentials(call, idOf(call), login);
        sendStatus(call.response, 200, 2005, 'credentials updated', { username: login.username });
      },
    },
    {
      ...common,
      operationId: 'deleteCredentials',
      method: 'delete',
      path: devicePath,
      summary: 'Delete the credentials of a device; its topics stay',
      result: { kind: 'status', status: 200, code: 2004, message: 'credentials deleted' },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        await credentials.removeCredentials(call, idOf(call));
        sendSuccess(call, 2004, 'credentials deleted');
      },
    },
  ];
}

function topicEndpoints(yieldTurn: YieldTurn): Endpoint[] {
  const respond = createResponder(yieldTurn, topic, { tagged: false });
  const parseList = createListQueryParser(topic);
  const topicBody = { schema: describeBody(topic, false), updating: false, limit_bytes: body_limit_bytes };
  return [
    {
      ...common,
      operationId: 'createTopic',
      method: 'post',
      path: `${devicePath}topics/`,
      summary: 'Let a device use a topic filter',
      body: topicBody,
      result: { kind: 'status', status: 200, code: 2001, message: 'topic created' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const values = parseFields(topic, call.body);
        await credentials.createTopic(call, idOf(call), String(values.name));
        sendSuccess(call, 2001, 'topic created');
      },
    },
    {
      ...common,
      operationId: 'listTopics',
      scope: 'read',
      method: 'get',
      path: `${devicePath}topics/`,
      summary: 'List the topic filters of a device',
      query: listQueryOf(topic),
      result: { kind: 'list', type: topic },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        const request = parseListRequest(parseList, call);
        const page = await listChildren(call, topic, request, { parent: device, field: 'device', id: idOf(call) });
        await respond.list(call, page, request.output);
      },
    },
    {
      ...common,
      operationId: 'deleteTopic',
      method: 'delete',
      path: `${devicePath}topics/`,
      summary: 'Take a topic filter from a device',
      body: topicBody,
      result: { kind: 'status', status: 200, code: 2004, message: 'topic deleted' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const values = parseFields(topic, call.body);
        await credentials.removeTopic(call, idOf(call), String(values.name));
        sendSuccess(call, 2004, 'topic deleted');
      },
    },
  ];
}
