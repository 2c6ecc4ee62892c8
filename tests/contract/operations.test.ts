import { describe, expect, it } from '@jest/globals';
import { XMLParser } from 'fast-xml-parser';
import { useTestService } from '../support/expect-status.js';

const ctx = await useTestService();
const file = 'aGVsbG8=';

type Shape = Record<string, unknown>;
/** Expected response of a row: a status body, one object, a list of objects or a file. */
type ExpectedBody =
  | { code: number; message: string; details?: [type: string, object: Shape] }
  | { object: [type: string, object: Shape] }
  | { list: [type: string, ...objects: Shape[]] }
  | { file: string };
type Row = readonly [method: string, path: string, body: Shape | undefined, status: number, expected: ExpectedBody];

/** Every operation on resources and device configs (reference/resources.md#operations); later rows depend on earlier ones. */
function rows(account: string, now: number): Row[] {
  const audit = { owner: 'alice', updater: 'alice', created_at: now, updated_at: now };
  const id = (name: string) => `${name}@${account}`;
  const common = (name: string) => ({ id_developer: id(name), name, enabled: true, ...audit, version: 0 });
  const project = { ...common('P'), id_customer: 'c-1' };
  const service = { ...common('S'), id_project: id('P'), description: 'of P' };
  const group = { ...common('G'), id_service: id('S') };
  const asset = { ...common('A'), id_group: id('G'), properties: { weight: 5 } };
  const device = {
    type: 'gateway',
    time_zone: 'Europe/Madrid',
    frequency_status: 1440,
    frequency_stream: 1440,
    status: 'disconnected',
  };
  const groupDevice = { ...common('D'), ...device, id_group: id('G') };
  const assetDevice = { ...common('E'), ...device, id_asset: id('A') };
  const model = { ...common('M'), properties: { colour: 'red' } };
  const listed = {
    name: 'boot',
    version: '1.0',
    size: 5,
    checksum: 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d',
    device: id('D'),
    ...audit,
  };
  const config = { ...listed, file };
  const changed = (object: Shape): Shape => ({ ...object, description: 'changed', version: 1 });
  const changes = { description: 'changed' };
  const created = (message: string): ExpectedBody => ({ code: 2001, message });
  const updated = (message: string, type: string, object: Shape): ExpectedBody => ({
    code: 2005,
    message,
    details: [type, changed(object)],
  });
  const deleted = (message: string): ExpectedBody => ({ code: 2004, message });
  return [
    // create
    ['POST', '/projects/', { name: 'P', id_customer: 'c-1' }, 200, created('Project created')],
    ['POST', '/services/', { name: 'S', id_project: id('P'), description: 'of P' }, 200, created('Service created')],
    ['POST', '/groups/', { name: 'G', id_service: id('S'), enabled: 1 }, 200, created('Group created')],
    ['POST', '/assets/', { name: 'A', id_group: id('G'), properties: { weight: 5 } }, 200, created('Asset created')],
    ['POST', '/devices/', { name: 'D', type: 'gateway', id_group: id('G') }, 200, created('Device created')],
    ['POST', '/devices/', { name: 'E', type: 'gateway', id_asset: id('A') }, 200, created('Device created')],
    ['POST', '/models/', { name: 'M', properties: { colour: 'red' } }, 200, created('model persisted')],
    // show
    ['GET', `/projects/P@${account}/`, undefined, 200, { object: ['project', project] }],
    ['GET', `/services/S@${account}/`, undefined, 200, { object: ['service', service] }],
    ['GET', `/groups/G@${account}/`, undefined, 200, { object: ['group', group] }],
    ['GET', `/assets/A@${account}/`, undefined, 200, { object: ['asset', asset] }],
    ['GET', `/devices/D@${account}/`, undefined, 200, { object: ['device', groupDevice] }],
    ['GET', `/models/M@${account}/`, undefined, 200, { object: ['model', model] }],
    // list
    ['GET', '/projects/', undefined, 200, { list: ['project', project] }],
    ['GET', '/services/', undefined, 200, { list: ['service', service] }],
    ['GET', '/groups/', undefined, 200, { list: ['group', group] }],
    ['GET', '/assets/', undefined, 200, { list: ['asset', asset] }],
    ['GET', '/devices/', undefined, 200, { list: ['device', groupDevice, assetDevice] }],
    ['GET', '/models/', undefined, 200, { list: ['model', model] }],
    // the children of a parent
    ['GET', `/projects/P@${account}/services/S@${account}/`, undefined, 200, { object: ['service', service] }],
    ['GET', `/projects/P@${account}/services/`, undefined, 200, { list: ['service', service] }],
    ['GET', `/services/S@${account}/groups/G@${account}/`, undefined, 200, { object: ['group', group] }],
    ['GET', `/services/S@${account}/groups/`, undefined, 200, { list: ['group', group] }],
    ['GET', `/groups/G@${account}/assets/A@${account}/`, undefined, 200, { object: ['asset', asset] }],
    ['GET', `/groups/G@${account}/assets/`, undefined, 200, { list: ['asset', asset] }],
    ['GET', `/groups/G@${account}/devices/D@${account}/`, undefined, 200, { object: ['device', groupDevice] }],
    ['GET', `/groups/G@${account}/devices/`, undefined, 200, { list: ['device', groupDevice] }],
    ['GET', `/assets/A@${account}/devices/E@${account}/`, undefined, 200, { object: ['device', assetDevice] }],
    ['GET', `/assets/A@${account}/devices/`, undefined, 200, { list: ['device', assetDevice] }],
    // device configs
    [
      'POST',
      `/devices/D@${account}/deviceconfigs/`,
      { name: 'boot', version: '1.0', file },
      201,
      { code: 2001, message: 'Device_config created', details: ['deviceconfig', config] },
    ],
    ['GET', `/devices/D@${account}/deviceconfigs/`, undefined, 200, { list: ['deviceconfig', listed] }],
    ['GET', `/devices/D@${account}/deviceconfigs/boot/1.0/`, undefined, 200, { file: 'hello' }],
    ['GET', `/devices/D@${account}/deviceconfigs/boot/`, undefined, 200, { file: 'hello' }],
    // update
    ['PUT', `/projects/P@${account}/`, changes, 200, updated('Project updated', 'project', project)],
    ['PUT', `/services/S@${account}/`, changes, 200, updated('Service updated', 'service', service)],
    ['PUT', `/groups/G@${account}/`, changes, 200, updated('Group updated', 'group', group)],
    ['PUT', `/assets/A@${account}/`, changes, 200, updated('Asset updated', 'asset', asset)],
    ['PUT', `/devices/D@${account}/`, changes, 200, updated('Device updated', 'device', groupDevice)],
    ['PUT', `/models/M@${account}/`, changes, 200, updated('model updated', 'model', model)],
    // delete
    ['DELETE', `/models/M@${account}/`, undefined, 200, deleted('model deleted')],
    ['DELETE', `/devices/D@${account}/`, undefined, 200, deleted('Device deleted')],
    ['DELETE', `/assets/A@${account}/`, undefined, 200, deleted('Asset deleted')],
    ['DELETE', `/groups/G@${account}/`, undefined, 200, deleted('Group deleted')],
    ['DELETE', `/services/S@${account}/`, undefined, 200, deleted('Service deleted')],
    ['DELETE', `/projects/P@${account}/`, undefined, 200, deleted('Project deleted')],
    // all collections are empty
    ...['projects', 'services', 'groups', 'assets', 'devices', 'models'].map(
      (plural): Row => ['GET', `/${plural}/`, undefined, 200, { list: [plural.slice(0, -1)] }],
    ),
  ];
}

/** The expected JSON body. */
function jsonOf(expected: Exclude<ExpectedBody, { file: string }>): unknown {
  if ('code' in expected)
    return { code: expected.code, message: expected.message, details: expected.details?.[1] ?? {} };
  if ('object' in expected) return expected.object[1];
  const [, ...objects] = expected.list;
  return { total_documents: objects.length, result: objects };
}

/** The expected XML as parsed (reference/requests.md#xml): roots and members are named after their type. */
function xmlOf(expected: ExpectedBody): unknown {
  if ('code' in expected) return { response: toTexts(jsonOf(expected)) };
  if ('object' in expected) return { [expected.object[0]]: toTexts(expected.object[1]) };
  if ('file' in expected) return { deviceconfig: expect.objectContaining({ name: 'boot', version: '1.0', file }) };
  const [type, ...objects] = expected.list;
  const members =
    objects.length === 0 ? '' : { [type]: objects.length === 1 ? toTexts(objects[0]) : objects.map(toTexts) };
  return { response: { total_documents: String(objects.length), result: members } };
}

function toTexts(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return String(value);
  if (Object.keys(value).length === 0) return '';
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, toTexts(inner)]));
}

const table = (account: string) => rows(account, 0).map(([method, path], index) => [method, path, index] as const);
const parser = new XMLParser({ parseTagValue: false, ignoreDeclaration: true });

describe('in JSON', () => {
  it.each(table('json'))('%s %s', async (method, path, index) => {
    const api = await ctx.service.client({ account: 'json' });
    const [, , body, status, expected] = rows('json', ctx.service.now())[index] as Row;
    const reply = await api.send(method, path, {}, body && JSON.stringify(body));
    expect(reply.status).toBe(status);
    expect(reply.headers['content-type']).toBe(
      'file' in expected ? 'application/octet-stream' : 'application/json; charset=utf-8',
    );
    if ('file' in expected) expect(String(reply.body)).toBe(expected.file);
    else expect(reply.body).toEqual(jsonOf(expected));
  });
});

describe('in XML', () => {
  it.each(table('xml'))('%s %s', async (method, path, index) => {
    const api = await ctx.service.client({ account: 'xml' });
    const [, , body, status, expected] = rows('xml', ctx.service.now())[index] as Row;
    const reply = await api.send(method, path, { accept: 'application/xml' }, body && JSON.stringify(body));
    expect(reply.status).toBe(status);
    expect(reply.headers['content-type']).toBe('application/xml; charset=utf-8');
    expect(parser.parse(reply.text, true)).toEqual(xmlOf(expected));
  });
});
