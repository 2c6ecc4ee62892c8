import { expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { describeResourceContract, propertiesRule, textRule } from '../../support/resource-contract.js';
import { createFixtures, pathOf } from '../../support/service.js';

const ctx = await useTestService();
const show = async (id: string) => (await ctx.api.get(pathOf('devices', id))).body;
const idOf = (location = '') => decodeURIComponent(location.split('/').at(-2) ?? '');

const optional = {
  properties: { a: { b: [1] } },
  sensor: 'my own sensor',
  firmware: '1.0',
  checksum: 'not hexadecimal, but 40 characters long!',
  time_zone: 'UTC',
  frequency_status: 1,
  frequency_stream: 525600,
  lon: -3.7,
  lat: 40.4,
  networking: { type: 'gprs', sim_card: '123456789012345678', telephone_number: '+34600000000', carrier: 'c' },
};

it('shows every field that was sent', async () => {
  const id = await ctx.fixtures.device({ ...optional, description: 'd', enabled: false });
  expect(await show(id)).toMatchObject({ ...optional, description: 'd', enabled: false });
});

const minuteRules = ['frequency_status', 'frequency_stream'].map(
  (field) => [field, [1, 1441, 1e9], [0, -1, 1.5, '5', true, [], 1e300]] as const,
);
describeResourceContract(ctx, {
  plural: 'devices',
  label: 'Device',
  uniqueNames: false,
  required: async () => ({ type: 'gateway', id_group: await ctx.fixtures.group() }),
  optional,
  rules: [
    textRule('type', 50),
    textRule('sensor', 50),
    textRule('firmware', 50),
    ['checksum', ['x'.repeat(40), '\u{1F6F0}'.repeat(40)], ['x'.repeat(39), 'x'.repeat(41), '', 'a\0'.repeat(20), 5]],
    [
      'time_zone',
      ['UTC', 'Europe/Madrid', 'America/Argentina/Buenos_Aires'],
      ['Mars/Olympus', 'europe/madrid', '', '+01:00', 'CET ', 5],
    ],
    ...minuteRules,
    propertiesRule,
    ['id_model', [], ['noat', 5, {}]],
  ],
  parents: {
    id_group: ['groups', (api) => createFixtures(api).group()],
    id_asset: ['assets', (api) => createFixtures(api).asset()],
  },
});

it('accepts the listed time zones (every ninth is tried)', async () => {
  const id = await ctx.fixtures.device();
  const { result } = (await ctx.api.get('/time_zones/')).body;
  const zones: string[] = result.map(({ tz }: { tz: string }) => tz);
  const rejected = [];
  for (const time_zone of zones.filter((_, index) => index % 9 === 0))
    if (summarize(await ctx.api.put(pathOf('devices', id), { time_zone })) !== '2005') rejected.push(time_zone);
  expect(rejected).toEqual([]);
});

it('numbers the identifiers of devices with one name, reusing the numbers of deleted devices', async () => {
  const id_group = await ctx.fixtures.group();
  const createTwin = () => ctx.fixtures.device({ name: 'twin', id_group });
  expect([await createTwin(), await createTwin(), await createTwin()]).toEqual([
    'twin@acme',
    'twin-2@acme',
    'twin-3@acme',
  ]);
  await ctx.api.delete(pathOf('devices', 'twin-2@acme'));
  expect([await createTwin(), await createTwin()]).toEqual(['twin-2@acme', 'twin-4@acme']);
  await ctx.api.delete(pathOf('devices', 'twin@acme'));
  expect(await createTwin()).toBe('twin@acme');
  expect(await ctx.fixtures.device({ name: 'twin-5', id_group })).toBe('twin-5@acme');
  expect(await createTwin()).toBe('twin-6@acme');
  expect((await ctx.api.get('/devices/?name=twin')).body.total_documents).toBe(5);
  await ctx.api.put(pathOf('devices', 'twin-3@acme'), { name: 'single' });
  expect(await ctx.fixtures.device({ name: 'single', id_group })).toBe('single@acme');
});

it('numbers identifiers per account', async () => {
  const stranger = createFixtures(await ctx.service.client({ account: 'stranger' }));
  expect(await ctx.fixtures.device({ name: 'near' })).toBe('near@acme');
  expect(await stranger.device({ name: 'near' })).toBe('near@stranger');
});

it('requires exactly one of id_group and id_asset', async () => {
  const [id_group, id_asset] = [await ctx.fixtures.group(), await ctx.fixtures.asset()];
  const id = await ctx.fixtures.device({ id_group });
  const before = await show(id);
  const body = { name: 'd', type: 't' };
  for (const parents of [
    {},
    { id_group, id_asset },
    { id_group: null, id_asset: null },
    { id_group: 'a@b', id_asset: 'a@b' },
  ])
    expect(summarize(await ctx.api.post('/devices/', { ...body, ...parents }))).toBe('4003 id_asset id_group');
  for (const parents of [
    { id_group, id_asset },
    { id_group: null, id_asset: null },
  ])
    expect(summarize(await ctx.api.put(pathOf('devices', id), parents))).toMatch(/^4003 (id_asset )?id_group$/);
  expect(await show(id)).toEqual(before);
  expect(summarize(await ctx.api.post('/devices/', { ...body, id_group, id_asset: null }))).toBe('2001');
});

it.each([
  ['properties of a device', 'devices', (n: number) => ({ properties: { n } })],
  [
    'a group that is sent back',
    'groups',
    (n: number, { id_service }: object & { id_service?: string }) => ({ id_service, description: `${n}` }),
  ],
])('takes all of many updates without a version at the same time: %s', async (_what, plural, bodyOf) => {
  const id = await (plural === 'groups' ? ctx.fixtures.group() : ctx.fixtures.device());
  const { version: _, ...before } = (await ctx.api.get(pathOf(plural, id))).body;
  const updates = Array.from({ length: 60 }, (_each, n) => ctx.api.put(pathOf(plural, id), bodyOf(n, before)));
  expect(new Set((await Promise.all(updates)).map(summarize))).toEqual(new Set(['2005']));
  expect((await ctx.api.get(pathOf(plural, id))).body.version).toBe(60);
});

it('names a missing object together with what the stored device makes wrong', async () => {
  const id = await ctx.fixtures.device();
  const refused = await ctx.api.put(pathOf('devices', id), { id_model: 'ghost@acme', lon: 1, id_group: null });
  expect(summarize(refused)).toBe('4003 id_group id_model lat');
});

it('moves from a group to an asset and back', async () => {
  const [id_group, id_asset] = [await ctx.fixtures.group(), await ctx.fixtures.asset()];
  const id = await ctx.fixtures.device({ id_group });
  const parentStatuses = async () => [
    (await ctx.api.get(pathOf('groups', id_group, 'devices', id))).status,
    (await ctx.api.get(pathOf('assets', id_asset, 'devices', id))).status,
  ];
  const { id_group: _, ...rest } = await show(id);
  expect((await ctx.api.put(pathOf('devices', id), { id_asset })).body.details).toEqual({
    ...rest,
    id_asset,
    version: 1,
  });
  expect(await parentStatuses()).toEqual([404, 200]);
  expect(summarize(await ctx.api.put(pathOf('devices', id), { id_asset: null }))).toMatch(/^4003 id_asset/);
  expect((await ctx.api.put(pathOf('devices', id), { id_group, id_asset: null })).body.details).toEqual({
    ...rest,
    id_group,
    version: 2,
  });
  expect(await parentStatuses()).toEqual([200, 404]);
});

it.each<[string, object, string]>([
  ['both', { lon: -180, lat: 90 }, '2001'],
  ['the other corner', { lon: 180, lat: -90 }, '2001'],
  ['zero', { lon: 0, lat: 0 }, '2001'],
  ['both null', { lon: null, lat: null }, '2001'],
  ['longitude alone', { lon: 1 }, '4003 lat'],
  ['latitude alone', { lat: 1 }, '4003 lon'],
  ['latitude null', { lon: 1, lat: null }, '4003 lat'],
  ['longitude too large', { lon: 180.0001, lat: 1 }, '4003 lon'],
  ['longitude too small', { lon: -180.0001, lat: 1 }, '4003 lon'],
  ['latitude too large', { lon: 1, lat: 90.0001 }, '4003 lat'],
  ['latitude too small', { lon: 1, lat: -90.0001 }, '4003 lat'],
  ['texts', { lon: '1', lat: '2' }, '4003 lat lon'],
  ['one wrong, the other absent', { lon: 181 }, '4003 lat lon'],
  ['arrays', { lon: [1], lat: {} }, '4003 lat lon'],
])('requires lon and lat together on POST: %s', async (_, location, expected) => {
  const reply = await ctx.api.post('/devices/', {
    name: 'placed',
    type: 't',
    id_group: await ctx.fixtures.group(),
    ...location,
  });
  expect(summarize(reply)).toBe(expected);
  if (expected !== '2001') return;
  const { lon = null, lat = null } = await show(idOf(reply.headers.location));
  expect({ lon, lat }).toEqual(location);
});

it('changes lon or lat alone on a device with a location, and removes both only together', async () => {
  const id = await ctx.fixtures.device({ lon: 1.5, lat: 2.5 });
  const location = async () => {
    const { lon, lat } = await show(id);
    return [lon, lat];
  };
  const put = async (body: object) => summarize(await ctx.api.put(pathOf('devices', id), body));
  expect([await put({ lon: 3 }), await location()]).toEqual(['2005', [3, 2.5]]);
  expect([await put({ lat: -4 }), await location()]).toEqual(['2005', [3, -4]]);
  for (const body of [{ lon: null }, { lat: null }, { lon: null, lat: 1 }])
    expect(await put(body)).toMatch(/^4003 (lat|lon)/);
  expect(await location()).toEqual([3, -4]);
  expect([await put({ lon: null, lat: null }), await location()]).toEqual(['2005', [undefined, undefined]]);
  expect([await put({ lon: 1 }), await put({ lat: 1 }), await location()]).toEqual([
    '4003 lat',
    '4003 lon',
    [undefined, undefined],
  ]);
  expect([await put({ lon: 5, lat: 6 }), await location()]).toEqual(['2005', [5, 6]]);
});

const sim_card = '123456789012345678';
const accepted = [
  { type: 'ethernet' },
  { type: 'gprs' },
  { type: 'wifi' },
  { type: 'zigbee' },
  { type: 'ethernet', conn_address: '192.0.2.1' },
  { type: 'wifi', conn_address: '2001:db8::1' },
  { type: 'wifi', conn_address: '::ffff:192.0.2.1' },
  { type: 'zigbee', conn_address: '00:1b:44:11:3A:b7' },
  { type: 'zigbee', conn_address: '00-1B-44-11-3A-B7' },
  { type: 'zigbee', conn_address: '00:1b:44:ff:fe:11:3a:b7' },
  { type: 'gprs', sim_card, telephone_number: 't'.repeat(15), carrier: 'c'.repeat(50) },
  { type: 'gprs', sim_card: '\u{1F4F6}'.repeat(18), telephone_number: '1', carrier: '\u{1F4F6}'.repeat(50) },
];
const rejected: [object | string | number, string][] = [
  ['wifi', 'networking'],
  [5, 'networking'],
  [['wifi'] as object, 'networking'],
  [{}, 'networking.type'],
  [{ type: null }, 'networking.type'],
  [{ type: 'bluetooth' }, 'networking.type'],
  [{ type: 'WIFI' }, 'networking.type'],
  [{ type: 'bluetooth', conn_address: '192.0.2.7', sim_card, carrier: 'c' }, 'networking.type'],
  [{ type: 'wifi', ssid: 'x' }, 'networking.ssid'],
  [{ type: 'wifi', sim_card }, 'networking.sim_card'],
  [{ type: 'ethernet', telephone_number: '1' }, 'networking.telephone_number'],
  [{ type: 'zigbee', carrier: 'c' }, 'networking.carrier'],
  [{ type: 'gprs', conn_address: '192.0.2.1' }, 'networking.conn_address'],
  [{ type: 'wifi', conn_address: 'router' }, 'networking.conn_address'],
  [{ type: 'wifi', conn_address: '192.0.2.256' }, 'networking.conn_address'],
  [{ type: 'wifi', conn_address: '00:1b:44:11:3a' }, 'networking.conn_address'],
  [{ type: 'wifi', conn_address: '00:1b-44:11:3a:b7' }, 'networking.conn_address'],
  [{ type: 'wifi', conn_address: '' }, 'networking.conn_address'],
  [{ type: 'gprs', sim_card: '1'.repeat(17) }, 'networking.sim_card'],
  [{ type: 'gprs', sim_card: '1'.repeat(19) }, 'networking.sim_card'],
  [{ type: 'gprs', telephone_number: '1'.repeat(16) }, 'networking.telephone_number'],
  [{ type: 'gprs', telephone_number: '' }, 'networking.telephone_number'],
  [{ type: 'gprs', carrier: 'c'.repeat(51) }, 'networking.carrier'],
  [{ type: 'gprs', carrier: '' }, 'networking.carrier'],
  [{ type: 'wifi', sim_card: 5, carrier: 'c', x: 1 }, 'networking.carrier networking.sim_card networking.x'],
  [{ conn_address: 'router' }, 'networking.conn_address networking.type'],
];

it.each(accepted.map((networking) => [networking]))('accepts networking %j', async (networking) => {
  expect((await show(await ctx.fixtures.device({ networking }))).networking).toEqual(networking);
});

it.each(rejected)('rejects networking %j', async (networking, fields) => {
  const id = await ctx.fixtures.device({ networking: { type: 'wifi' } });
  const { id_group } = await show(id);
  expect(summarize(await ctx.api.post('/devices/', { name: 'd', type: 't', id_group, networking }))).toBe(
    `4003 ${fields}`,
  );
  expect(summarize(await ctx.api.put(pathOf('devices', id), { networking }))).toBe(`4003 ${fields}`);
  expect(await show(id)).toMatchObject({ networking: { type: 'wifi' }, version: 0 });
});

it('replaces networking as a whole', async () => {
  const id = await ctx.fixtures.device({ networking: { type: 'gprs', carrier: 'c' } });
  await ctx.api.put(pathOf('devices', id), { networking: { type: 'gprs', sim_card, carrier: null } });
  expect((await show(id)).networking).toEqual({ type: 'gprs', sim_card });
});

it('changes its entity tag when its status changes, without a new version', async () => {
  const id = await ctx.fixtures.device({ id_model: await ctx.fixtures.model() });
  const { etag = '' } = (await ctx.api.get(pathOf('devices', id))).headers;
  // deadlines that a stream sets on its device (reference/devices.md#deadlines)
  const now = ctx.service.now();
  await ctx.service.db
    .collection('devices')
    .updateOne({ id_developer: id }, { $set: { last_stream_at: now, stream_due_at: now + 60 } });
  const reply = await ctx.api.get(pathOf('devices', id), { 'If-None-Match': etag });
  expect([reply.status, reply.body.status, reply.body.version]).toEqual([200, 'no_status', 0]);
  expect(reply.headers.etag).not.toBe(etag);
  // the part of the tag before the dot is the version
  expect(summarize(await ctx.api.put(pathOf('devices', id), {}, { 'If-Match': etag }))).toBe('2005');
  expect(summarize(await ctx.api.put(pathOf('devices', id), {}, { 'If-Match': etag }))).toBe('4005 version');
});
