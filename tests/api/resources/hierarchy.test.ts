import { describe, expect, it } from '@jest/globals';
import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { summarize, useTestService } from '../../support/expect-status.js';
import { findOrphans } from '../../support/orphans.js';
import { describeResourceContract, propertiesRule, textRule } from '../../support/resource-contract.js';
import { createFixtures, pathOf } from '../../support/service.js';

const ctx = await useTestService();

describeResourceContract(ctx, {
  plural: 'projects',
  label: 'Project',
  required: async () => ({ id_customer: 'c-1' }),
  rules: [textRule('id_customer', 50)],
});

describe.each([
  ['services', 'Service', 'id_project', 'project'],
  ['groups', 'Group', 'id_service', 'service'],
] as const)('%s', (plural, label, parent, fixture) => {
  describeResourceContract(ctx, {
    plural,
    label,
    required: async () => ({ [parent]: await ctx.fixtures[fixture]() }),
    parents: { [parent]: [`${fixture}s`, (api) => createFixtures(api)[fixture]()] },
  });
});

describeResourceContract(ctx, {
  plural: 'assets',
  label: 'Asset',
  required: async () => ({ id_group: await ctx.fixtures.group() }),
  optional: { properties: { a: 1 } },
  rules: [propertiesRule],
  parents: { id_group: ['groups', (api) => createFixtures(api).group()] },
});

it.each(['', 'x', 'xy', 'xyz'])('keeps a name of long characters behind %j from others', async (start) => {
  const name = `${start}${'\u{1F600}'.repeat(50 - start.length)}`;
  await ctx.fixtures.project({ name });
  const reply = await ctx.api.put(pathOf('projects', await ctx.fixtures.project()), { name });
  expect(reply.body).toEqual({ code: 4003, message: 'validation error', details: { name: 'is taken' } });
});

it('may have the name of a project in another account and of a resource of another type', async () => {
  const stranger = await ctx.service.client({ account: 'other' });
  const body = { name: 'Everywhere', id_customer: 'c-1' };
  for (const api of [ctx.api, stranger]) expect(summarize(await api.post('/projects/', body))).toBe('2001');
  expect(summarize(await ctx.api.post('/models/', { name: 'Everywhere' }))).toBe('2001');
  expect((await stranger.get('/projects/')).body.result).toMatchObject([{ id_developer: 'Everywhere@other' }]);
});

it.each<[deleted: string, expected: string]>([
  ['projects', 'projects services groups assets devices/G devices/A configs/G configs/A'],
  ['services', 'services groups assets devices/G devices/A configs/G configs/A'],
  ['groups', 'groups assets devices/G devices/A configs/G configs/A'],
  ['assets', 'assets devices/A configs/A'],
  ['devices/G', 'devices/G configs/G'],
  ['devices/A', 'devices/A configs/A'],
])('deletes with one of %s: %s, and nothing else', async (deleted, expected) => {
  const { api, fixtures } = ctx;
  const id_project = await fixtures.project();
  const id_service = await fixtures.service({ id_project });
  const id_group = await fixtures.group({ id_service });
  const id_asset = await fixtures.asset({ id_group });
  const [groupDevice, assetDevice] = [await fixtures.device({ id_group }), await fixtures.device({ id_asset })];
  const paths: Record<string, string> = {
    projects: pathOf('projects', id_project),
    services: pathOf('services', id_service),
    groups: pathOf('groups', id_group),
    assets: pathOf('assets', id_asset),
    'devices/G': pathOf('devices', groupDevice),
    'devices/A': pathOf('devices', assetDevice),
    'configs/G': pathOf('devices', groupDevice, 'deviceconfigs', 'f', '1'),
    'configs/A': pathOf('devices', assetDevice, 'deviceconfigs', 'f', '1'),
  };
  for (const id of [groupDevice, assetDevice]) {
    const config = { name: 'f', version: '1', file: 'YQ==' };
    expect((await api.post(pathOf('devices', id, 'deviceconfigs'), config)).status).toBe(201);
    const replies = [
      await api.post('/streams/', [{ device: id, data: {} }]),
      await api.post('/status/', [{ device: id, data: {} }]),
      await api.post(pathOf('mqttdevices', id, 'credentials'), { username: id, password: 'password' }),
      await api.post(pathOf('mqttdevices', id, 'topics'), { name: 'a/b' }),
      await api.post(pathOf('devices', id, 'commands'), { name: 'restart' }),
      await api.patch(pathOf('devices', id, 'state'), { interval: 60 }),
    ];
    expect(replies.map(({ status }) => status)).toEqual(replies.map(() => 200));
  }
  expect(summarize(await api.delete(paths[deleted] ?? ''))).toBe('2004');
  const missing = [];
  for (const [label, path] of Object.entries(paths)) if ((await api.get(path)).status === 404) missing.push(label);
  expect(missing.join(' ')).toBe(expected);
  expect(await findOrphans(ctx.service.db.collection)).toEqual([]);
});

it('replaces properties as a whole', async () => {
  const id = await ctx.fixtures.asset({ properties: { a: 1, b: { c: 2 } } });
  expect((await ctx.api.put(pathOf('assets', id), { properties: { b: {} } })).body.details.properties).toEqual({
    b: {},
  });
  expect((await ctx.api.get(pathOf('assets', id))).body.properties).toEqual({ b: {} });
});

/** Keys and values with a meaning in JavaScript, MongoDB or XML (reference/identifiers.md#free-form-objects). */
const hostileProperties = `{"$where":"sleep(1)","a.b":{"c.d":1,"$set":{"x":1}},"_bsontype":"ObjectId","__proto__":{"polluted":true},"":"empty",
  "constructor":{"prototype":{}},"toJSON":1,"toBSON":null,"hasOwnProperty":0,"$ref":"x","$id":1,"_id":7,"length":3,"0":"zero","<a>&\\"'":"<b>&\\"']]>",
  "@":1,"#":2,"!":3,"?":4,"item":[[],[[1]],{},null,"",false,-0.5,1e300,5e-324,9007199254740993],"control":"\\u0001\\u001f\\uffff","lines":"a\\r\\nb\\tc ",
  "accent":"e\\u0301\\u00e9","\\ud83d\\udef0":"\\ud83d\\udef0"}`;

it.each([
  ['a\0', 'must hold well-formed text without NUL'],
  ['\ud800', 'must hold well-formed text without NUL'],
  ['\u{1F600}'.repeat(101), 'must have keys of at most 100 characters'],
])('says what is wrong with the key %j of properties', async (key, fault) => {
  const id_group = await ctx.fixtures.group();
  const refused = await ctx.api.post('/assets/', { name: 'Keys', id_group, properties: { [key]: 1 } });
  expect(refused.body.details).toEqual({ properties: fault });
});

it('stores properties under any key, interprets none and returns them unchanged', async () => {
  const id_group = await ctx.fixtures.group();
  const created = await ctx.api.post(
    '/assets/',
    `{"name":"hostile","id_group":${JSON.stringify(id_group)},"properties":${hostileProperties}}`,
  );
  expect(summarize(created)).toBe('2001');
  for (const sent of [created, await ctx.api.put('/assets/hostile@acme/', `{"properties":${hostileProperties}}`)]) {
    expect(sent.status).toBe(200);
    const { text } = await ctx.api.get('/assets/hostile@acme/');
    // parse the text and compare entries: object equality would ignore __proto__
    const properties = JSON.parse(text, (key, value) => (key === 'properties' ? entries(value) : value)).properties;
    expect(properties).toEqual(entries(JSON.parse(hostileProperties)));
  }
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

function entries(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(entries);
  if (typeof value !== 'object' || value === null) return value;
  return { entries: Object.entries(value).map(([key, inner]) => [key, entries(inner)]) };
}

it('shows properties in XML: <entry> for keys that are not XML names, <item> for array members, nil for null', async () => {
  const properties = {
    plain: 'x',
    'a.b': 1,
    'two words': true,
    '': 'empty',
    $where: 'y',
    '1st': 'z',
    list: [1, [2], { three: 3 }],
    nothing: null,
    blank: '',
    control: 'a\u0001b',
    mark: '<&>"\'',
  };
  const id = await ctx.fixtures.asset({ properties });
  const { text } = await ctx.api.get(pathOf('assets', id), { Accept: 'application/xml' });
  for (const part of [
    '<plain>x</plain>',
    '<a.b>1</a.b>',
    '<entry key="two words">true</entry>',
    '<entry key="">empty</entry>',
    '<entry key="$where">y</entry>',
    '<entry key="1st">z</entry>',
    '<list><item>1</item><item><item>2</item></item><item><three>3</three></item></list>',
    '<nothing nil="true"/>',
    '<control>a\uFFFDb</control>',
  ])
    expect(text).toContain(part);
  const parsed = new XMLParser({ parseTagValue: false }).parse(text, true).asset.properties;
  expect([parsed.blank, parsed.mark]).toEqual(['', '<&>"\'']);
});

it('shows hostile keys as well-formed XML', async () => {
  const id = await ctx.fixtures.asset();
  await ctx.api.put(pathOf('assets', id), `{"properties":${hostileProperties}}`);
  const { text } = await ctx.api.get(pathOf('assets', id), { Accept: 'application/xml' });
  expect(XMLValidator.validate(text)).toBe(true);
  for (const part of [
    '<entry key="$where">sleep(1)</entry>',
    '<__proto__><polluted>true</polluted></__proto__>',
    '<entry key="">empty</entry>',
    '<control>\uFFFD\uFFFD\uFFFD</control>',
  ])
    expect(text).toContain(part);
});
