import { hashPassword } from '../mqtt/passwords.js';
import { listChildren } from '../repositories/lists.js';
import * as mqtt from '../repositories/mqtt-credentials.js';
import { device, mqttcredentials, topic } from '../resources/index.js';
import { bodySchema } from '../schema/openapi/bodies.js';
import { body_limit_bytes } from '../schema/operation.js';
import { listParameters, listParser, parseFields } from '../schema/validation.js';
import type { Endpoint, EndpointDeps, RequestContext } from './context.js';
import { createResponder, sendStatus, sendSuccess } from './respond.js';

const one = '/mqttdevices/{device_id_developer}/';

/** Credentials and topics that devices use at the MQTT broker (§4.10, contract 9). */
export function mqttDeviceEndpoints({ yieldTurn }: EndpointDeps): Endpoint[] {
  const respond = createResponder(yieldTurn, topic, { tagged: false });
  const parse = listParser(topic);
  const idOf = ({ path }: RequestContext) => path.device_id_developer ?? '';
  const shared = { tag: 'mqttdevices', scope: 'write' } as const;
  const credentials = (updating: boolean) => ({
    schema: bodySchema(mqttcredentials, false),
    updating,
    limit_bytes: body_limit_bytes,
  });
  const name = { schema: bodySchema(topic, false), updating: false, limit_bytes: body_limit_bytes };

  async function loginOf({ body }: RequestContext): Promise<{ username: string; hash: string }> {
    const { username, password } = parseFields(mqttcredentials, body);
    return { username: String(username), hash: await hashPassword(String(password)) };
  }

  return [
    {
      ...shared,
      method: 'post',
      path: `${one}credentials/`,
      summary: 'Give a device the credentials it logs in with',
      body: credentials(false),
      result: { kind: 'status', status: 200, code: 2001, message: 'credentials created' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        await mqtt.createCredentials(call, idOf(call), await loginOf(call));
        sendSuccess(call, 2001, 'credentials created');
      },
    },
    {
      ...shared,
      method: 'put',
      path: `${one}credentials/`,
      summary: 'Change the credentials of a device',
      body: credentials(true),
      result: {
        kind: 'status',
        status: 200,
        code: 2005,
        message: 'credentials updated',
        details: { type: 'object', properties: { username: { type: 'string' } }, required: ['username'] },
      },
      failures: ['noBody', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const login = await loginOf(call);
        await mqtt.updateCredentials(call, idOf(call), login);
        sendStatus(call.response, 200, 2005, 'credentials updated', { username: login.username });
      },
    },
    {
      ...shared,
      method: 'delete',
      path: one,
      summary: 'Delete the credentials of a device; its topics stay',
      result: { kind: 'status', status: 200, code: 2004, message: 'credentials deleted' },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        await mqtt.removeCredentials(call, idOf(call));
        sendSuccess(call, 2004, 'credentials deleted');
      },
    },
    {
      ...shared,
      method: 'post',
      path: `${one}topics/`,
      summary: 'Let a device use a topic filter',
      body: name,
      result: { kind: 'status', status: 200, code: 2001, message: 'topic created' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const values = parseFields(topic, call.body);
        await mqtt.createTopic(call, idOf(call), String(values.name));
        sendSuccess(call, 2001, 'topic created');
      },
    },
    {
      ...shared,
      scope: 'read',
      method: 'get',
      path: `${one}topics/`,
      summary: 'List the topic filters of a device',
      query: listParameters(topic),
      result: { kind: 'list', type: topic },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        const request = parse(call.query, call.now);
        const page = await listChildren(call, topic, request, { parent: device, field: 'device', id: idOf(call) });
        await respond.list(call, page);
      },
    },
    {
      ...shared,
      method: 'delete',
      path: `${one}topics/`,
      summary: 'Take a topic filter from a device',
      body: name,
      result: { kind: 'status', status: 200, code: 2004, message: 'topic deleted' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const values = parseFields(topic, call.body);
        await mqtt.removeTopic(call, idOf(call), String(values.name));
        sendSuccess(call, 2004, 'topic deleted');
      },
    },
  ];
}
