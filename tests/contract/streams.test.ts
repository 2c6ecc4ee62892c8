import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { XMLParser } from 'fast-xml-parser';
import { type Api, createFixtures, pathOf, type Reply, startTestService } from '../support/service.js';

const service = await startTestService();
afterAll(() => service.stop());

const xml = new XMLParser({ ignoreAttributes: false, isArray: (name) => ['stream', 'topic'].includes(name) });

/** Converts a list in XML to its JSON form. */
function listOf(reply: Reply, member: string) {
  const { total_documents, result } = xml.parse(reply.text).response;
  return { total_documents, result: result === '' ? [] : result[member] };
}

/** A device with a data and a status stream, credentials and a topic; rows that change it use a new one. */
interface DeviceUnderTest {
  id: string;
}

type Row = [
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  target: (device: DeviceUnderTest) => string,
  body: unknown,
  status: number,
];

const path = (id: string, ...segments: string[]) => pathOf('mqttdevices', id, ...segments);
const streams = ({ id }: DeviceUnderTest) => pathOf('devices', id, 'streams');
const credentials = ({ id }: DeviceUnderTest) => path(id, 'credentials');
const topics = ({ id }: DeviceUnderTest) => path(id, 'topics');
const newCredentials = { username: 'fresh', password: 'password' };

/** Bodies with a code, by hand from reference/streams.md#sending and reference/mqtt.md#credentials. */
const codeRows: [...Row, code: number, message: string][] = [
  // streams
  ['DELETE', streams, undefined, 200, 2004, 'stream deleted'],
  ['DELETE', (device) => `${streams(device)}?_t=sta`, undefined, 200, 2004, 'stream deleted'],
  ['DELETE', streams, { protocol: 'none' }, 200, 2004, 'stream deleted'],
  ['POST', streams, { data: {} }, 200, 2001, 'stream created'],
  ['POST', streams, [{ data: {} }], 200, 2001, 'stream created'],
  // MQTT
  ['DELETE', ({ id }) => path(id), undefined, 200, 2004, 'credentials deleted'],
  ['POST', topics, { name: 'new' }, 200, 2001, 'topic created'],
  ['DELETE', topics, { name: 'a/b' }, 200, 2004, 'topic deleted'],
  // errors with empty details (reference/errors.md#codes)
  ['GET', () => '/devices/missing@acme/streams/', undefined, 404, 4041, 'not found'],
  ['DELETE', () => '/devices/missing@acme/streams/', undefined, 404, 4041, 'not found'],
  ['POST', () => '/devices/missing@acme/streams/', { data: {} }, 404, 4041, 'not found'],
  ['POST', () => '/mqttdevices/missing@acme/credentials/', newCredentials, 404, 4041, 'not found'],
  ['PUT', () => '/mqttdevices/missing@acme/credentials/', newCredentials, 404, 4041, 'not found'],
  ['DELETE', () => '/mqttdevices/missing@acme/', undefined, 404, 4041, 'not found'],
  ['POST', () => '/mqttdevices/missing@acme/topics/', { name: 'a' }, 404, 4041, 'not found'],
  ['GET', () => '/mqttdevices/missing@acme/topics/', undefined, 404, 4041, 'not found'],
  ['DELETE', () => '/mqttdevices/missing@acme/topics/', { name: 'a' }, 404, 4041, 'not found'],
  ['POST', streams, '{', 400, 4001, 'Json bad formed'],
  ['POST', () => '/streams/', '{', 400, 4001, 'Json bad formed'],
  ['POST', credentials, '{', 400, 4001, 'Json bad formed'],
  ['PUT', credentials, undefined, 400, 4001, 'nonexistent file'],
  ['POST', topics, '[]', 400, 4001, 'Json bad formed'],
];

/** Errors whose details name one field or parameter. */
const faultRows: [...Row, code: 4003 | 4004, field: string][] = [
  ['POST', streams, {}, 400, 4003, 'data'],
  ['POST', streams, [{ data: {} }, { data: 1 }], 400, 4003, '1.data'],
  ['POST', streams, [], 400, 4003, 'streams'],
  ['POST', streams, { data: {}, protocol: 'x'.repeat(51) }, 400, 4003, 'protocol'],
  ['POST', () => '/streams/', { data: {} }, 400, 4003, 'device'],
  ['POST', () => '/status/', { data: {}, device: 'missing@acme' }, 400, 4003, 'device'],
  ['POST', credentials, { username: 'x' }, 400, 4003, 'password'],
  ['POST', credentials, newCredentials, 400, 4003, 'username'],
  ['PUT', credentials, { password: 'password' }, 400, 4003, 'username'],
  ['POST', topics, {}, 400, 4003, 'name'],
  ['POST', topics, { name: 'a/b' }, 400, 4003, 'name'],
  ['GET', (device) => `${streams(device)}?max=1001`, undefined, 400, 4004, 'max'],
  ['GET', (device) => `${streams(device)}?_m=2`, undefined, 400, 4004, '_m'],
  ['GET', (device) => `${streams(device)}?name=x`, undefined, 400, 4004, 'name'],
  ['GET', (device) => `${streams(device)}?enabled=1`, undefined, 400, 4004, 'enabled'],
  ['DELETE', (device) => `${streams(device)}?_t=both`, undefined, 400, 4004, '_t'],
  ['DELETE', streams, { at_to: 'x' }, 400, 4004, 'at_to'],
  ['GET', () => '/devices/bad/streams/', undefined, 400, 4004, 'device_id_developer'],
  ['POST', () => '/devices/bad/streams/', { data: 5 }, 400, 4004, 'device_id_developer'],
  ['DELETE', () => '/devices/bad/streams/', undefined, 400, 4004, 'device_id_developer'],
  ['POST', () => '/mqttdevices/bad/credentials/', newCredentials, 400, 4004, 'device_id_developer'],
  ['DELETE', () => '/mqttdevices/bad/', undefined, 400, 4004, 'device_id_developer'],
  ['GET', () => '/mqttdevices/bad/topics/', undefined, 400, 4004, 'device_id_developer'],
];

describe.each(['json', 'xml'] as const)('in %s', (format) => {
  const headers = { Accept: `application/${format}` };
  let api: Api;
  let fixtures: ReturnType<typeof createFixtures>;
  let id_group = '';
  let shared: DeviceUnderTest;

  beforeAll(async () => {
    api = await service.client();
    fixtures = createFixtures(api);
    id_group = await fixtures.group();
    shared = await createDevice();
  });

  async function createDevice(): Promise<DeviceUnderTest> {
    const id = await fixtures.device({ id_group });
    await api.post(pathOf('devices', id, 'streams'), [
      { at: 10, data: { t: 1 } },
      { at: 20, data: { t: 2 }, _t: 'sta', protocol: 'lora' },
    ]);
    await api.post(path(id, 'credentials'), { username: id, password: 'password' });
    await api.post(path(id, 'topics'), { name: 'a/b' });
    return { id };
  }

  async function call(device: DeviceUnderTest, ...[method, target, body]: [...Row]): Promise<Reply> {
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const reply = await api.send(method, target(device), headers, text);
    expect(reply.headers['content-type']).toBe(`application/${format}; charset=utf-8`);
    return reply;
  }

  const bodyOf = (reply: Reply) => (format === 'json' ? reply.body : xml.parse(reply.text).response);
  const noDetails = format === 'json' ? {} : '';

  it.each(codeRows)('%s %s with %j answers %d', async (method, target, body, status, code, message) => {
    const reply = await call(status === 200 ? await createDevice() : shared, method, target, body, status);
    expect([reply.status, bodyOf(reply)]).toEqual([status, { code, message, details: noDetails }]);
  });

  it.each(faultRows)('%s %s with %j answers %d', async (method, target, body, status, code, field) => {
    const reply = await call(shared, method, target, body, status);
    const message = code === 4003 ? 'validation error' : 'format parameter invalid';
    // "1.data" is not an XML name
    const details =
      format === 'json' || /^[a-z_]/.test(field)
        ? { [field]: expect.any(String) }
        : { entry: { '@_key': field, '#text': expect.any(String) } };
    expect([reply.status, bodyOf(reply)]).toEqual([status, { code, message, details }]);
  });

  it('GET streams and GET topics answer total_documents and result', async () => {
    const { id } = shared;
    const list = async (member: string, target: Row[1]) => {
      const reply = await call(shared, 'GET', target, undefined, 200);
      expect(reply.status).toBe(200);
      return format === 'json' ? reply.body : listOf(reply, member);
    };
    const audit = { owner: 'alice', updater: 'alice', created_at: service.now() };
    const id_developer = expect.stringMatching(/^[0-9a-f]{64}@/);
    const first = { id_developer, device: id, _t: 'str', protocol: 'http', at: 10, data: { t: 1 }, ...audit };
    const second = { id_developer, device: id, _t: 'sta', protocol: 'lora', at: 20, data: { t: 2 }, ...audit };
    expect(await list('stream', streams)).toEqual({ total_documents: 2, result: [first, second] });
    const ofDevice = `device=${encodeURIComponent(id)}`;
    expect(await list('stream', () => `/streams/?${ofDevice}&order=-1`)).toEqual({
      total_documents: 2,
      result: [second, first],
    });
    expect(await list('stream', (device) => `${streams(device)}?_t=sta&max=1`)).toEqual({
      total_documents: 1,
      result: [second],
    });
    expect(await list('stream', (device) => `${streams(device)}?at=5`)).toEqual({ total_documents: 0, result: [] });
    expect(await list('topic', topics)).toEqual({
      total_documents: 1,
      result: [{ name: 'a/b', created_at: service.now() }],
    });
  });

  it('POST /streams/ and /status/ answer as legacy firmware expects, with and without a key', async () => {
    const id = await fixtures.device({ id_group });
    for (const legacyPath of ['/streams/', '/status/']) {
      const reply = await call(shared, 'POST', () => legacyPath, { device: id, data: {} }, 200);
      expect([reply.status, bodyOf(reply)]).toEqual([200, { response: 'OK' }]);
      const rejected = await service.clientWith('no-key').send('POST', legacyPath, headers, '{}');
      expect([rejected.status, bodyOf(rejected)]).toEqual([401, { response: 'Not authorized: apikey not found' }]);
    }
  });
});
