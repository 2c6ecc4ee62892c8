import type { Database } from '../db/database.js';
import { hashPassword } from '../mqtt/passwords.js';
import * as credentials from '../repositories/mqtt-credentials.js';
import * as resources from '../repositories/resources.js';
import { device, mqttcredentials, topic } from '../resources/index.js';
import { bodySchema } from '../schema/openapi.js';
import { body_limit_bytes } from '../schema/operation.js';
import { listParameters, listParser, parseFields } from '../schema/validation.js';
import type { Endpoint, RequestContext } from './context.js';
import { createResponder, sendStatus, sendSuccess } from './respond.js';

const devicePath = '/mqttdevices/{device_id_developer}/';

const common = { tag: 'mqttdevices', scope: 'write' } as const;
const idOf = ({ path }: RequestContext) => path.device_id_developer ?? '';

/** The endpoints of a device's MQTT credentials and topics (reference/mqtt.md#credentials, reference/mqtt.md#topics). */
export function mqttDeviceEndpoints(db: Database): Endpoint[] {
  return [...credentialsEndpoints(db), ...topicEndpoints(db)];
}

async function loginOf({ body }: RequestContext): Promise<{ username: string; hash: string }> {
  const { username, password } = parseFields(mqttcredentials, body);
  return { username: String(username), hash: await hashPassword(String(password)) };
}

function credentialsEndpoints(db: Database): Endpoint[] {
  const credentialsBody = (updating: boolean) => ({
    schema: bodySchema(mqttcredentials, false),
    updating,
    limit_bytes: body_limit_bytes,
  });
  return [
    {
      ...common,
      method: 'post',
      path: `${devicePath}credentials/`,
      summary: 'Give a device the credentials it logs in with',
      body: credentialsBody(false),
      result: { kind: 'status', status: 200, code: 2001, message: 'credentials created' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        await credentials.createCredentials(db, call.principal, idOf(call), await loginOf(call), call.now);
        sendSuccess(call, 2001, 'credentials created');
      },
    },
    {
      ...common,
      method: 'put',
      path: `${devicePath}credentials/`,
      summary: 'Change the credentials of a device',
      body: credentialsBody(true),
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
        await credentials.updateCredentials(db, call.principal, idOf(call), login, call.now);
        sendStatus(call.response, 200, 2005, 'credentials updated', { username: login.username });
      },
    },
    {
      ...common,
      method: 'delete',
      path: devicePath,
      summary: 'Delete the credentials of a device; its topics stay',
      result: { kind: 'status', status: 200, code: 2004, message: 'credentials deleted' },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        await credentials.removeCredentials(db, call.principal.account, idOf(call));
        sendSuccess(call, 2004, 'credentials deleted');
      },
    },
  ];
}

function topicEndpoints(db: Database): Endpoint[] {
  const respond = createResponder(db, topic, { tagged: false });
  const parseList = listParser(topic);
  const prepare = runOnce(() => credentials.prepareTopics(db));
  const topicBody = { schema: bodySchema(topic, false), updating: false, limit_bytes: body_limit_bytes };
  return [
    {
      ...common,
      method: 'post',
      path: `${devicePath}topics/`,
      summary: 'Let a device use a topic filter',
      body: topicBody,
      result: { kind: 'status', status: 200, code: 2001, message: 'topic created' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const values = parseFields(topic, call.body);
        await prepare();
        await credentials.createTopic(db, call.principal, idOf(call), String(values.name), call.now);
        sendSuccess(call, 2001, 'topic created');
      },
    },
    {
      ...common,
      scope: 'read',
      method: 'get',
      path: `${devicePath}topics/`,
      summary: 'List the topic filters of a device',
      query: listParameters(topic),
      result: { kind: 'list', type: topic },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        const { account } = call.principal;
        const request = parseList(call.query, call.now);
        const page = await resources.listResources(db, topic, account, request, { device: idOf(call) });
        if (page.total_documents === 0) await resources.mustExist(db, device, account, idOf(call));
        await respond.list(call, page);
      },
    },
    {
      ...common,
      method: 'delete',
      path: `${devicePath}topics/`,
      summary: 'Take a topic filter from a device',
      body: topicBody,
      result: { kind: 'status', status: 200, code: 2004, message: 'topic deleted' },
      failures: ['badJson', 'badParameter', 'invalid', 'notFound', 'tooLarge'],
      async handle(call) {
        const values = parseFields(topic, call.body);
        await credentials.removeTopic(db, call.principal.account, idOf(call), String(values.name), call.now);
        sendSuccess(call, 2004, 'topic deleted');
      },
    },
  ];
}

/** Shares one successful run among all calls; a failed run is repeated by the next call. */
function runOnce(work: () => Promise<void>): () => Promise<void> {
  let run: Promise<void> | undefined;
  return () => {
    run ??= work().catch((error: unknown) => {
      run = undefined;
      throw error;
    });
    return run;
  };
}
