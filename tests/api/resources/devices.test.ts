import { expect, it } from '@jest/globals';
import { ownService, summarize } from '../../support/expect-status.js';
import { describeResourceContract, propertiesRule, textRule } from '../../support/resource-contract.js';
import { at, givenBy } from '../../support/service.js';

const own = ownService();
const shown = async (id: string) => (await own.api.get(at('devices', id))).body;
const idOf = (location = '') => decodeURIComponent(location.split('/').at(-2) ?? '');

it('creates a device with its defaults and shows it', async () => {
  const id_group = await own.given.group();
  const reply = await own.api.post('/devices/', { name: 'gauge', type: 'my own type', id_group });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Device created', details: {} }]);
  expect(reply.headers.location).toBe('/devices/gauge%40acme/');
  expect(await shown('gauge@acme')).toEqual({
    id_developer: 'gauge@acme',
    name: 'gauge',
    type: 'my own type',
    id_group,
    time_zone: 'Europe/Madrid',
    frequency_status: 1440,
    frequency_stream: 1440,
    enabled: true,
    status: 'disconnected',
    owner: 'alice',
    updater: 'alice',
    created_at: own.service.now(),
    updated_at: own.service.now(),
    version: 0,
  });
});

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

it('shows every field that was given', async () => {
  const id = await own.given.device({ ...optional, description: 'd', enabled: false });
  expect(await shown(id)).toMatchObject({ ...optional, description: 'd', enabled: false });
});

const minutes = ['frequency_status', 'frequency_stream'].map(
  (field) => [field, [1, 1441, 1e9], [0, -1, 1.5, '5', true, [], 1e300]] as const,
);
describeResourceContract(own, {
  plural: 'devices',
  label: 'Device',
  uniqueNames: false,
  required: async () => ({ type: 'gateway', id_group: await own.given.group() }),
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
    ...minutes,
    propertiesRule,
    ['id_model', [], ['', 'noat', 5, {}]],
  ],
  parents: { id_group: ['groups', (api) => givenBy(api).group()], id_asset: ['assets', (api) => givenBy(api).asset()] },
});

it('accepts the listed time zones, every ninth of them asked', async () => {
  const id = await own.given.device();
  const { result } = (await own.api.get('/time_zones/')).body;
  const zones: string[] = result.map(({ tz }: { tz: string }) => tz);
  const refused = [];
  for (const time_zone of zones.filter((_, index) => index % 9 === 0))
    if (summarize(await own.api.put(at('devices', id), { time_zone })) !== '2005') refused.push(time_zone);
  expect(refused).toEqual([]);
});

it('shares a name: the next free number makes the identifier, also after a deletion', async () => {
  const id_group = await own.given.group();
  const make = () => own.given.device({ name: 'twin', id_group });
  expect([await make(), await make(), await make()]).toEqual(['twin@acme', 'twin-2@acme', 'twin-3@acme']);
  await own.api.delete(at('devices', 'twin-2@acme'));
  expect([await make(), await make()]).toEqual(['twin-2@acme', 'twin-4@acme']);
  await own.api.delete(at('devices', 'twin@acme'));
  expect(await make()).toBe('twin@acme');
  expect(await own.given.device({ name: 'twin-5', id_group })).toBe('twin-5@acme');
  expect(await make()).toBe('twin-6@acme');
  expect((await own.api.get('/devices/?name=twin')).body.total_documents).toBe(5);
  await own.api.put(at('devices', 'twin-3@acme'), { name: 'single' });
  expect(await own.given.device({ name: 'single', id_group })).toBe('single@acme');
});

it('numbers names in the account alone', async () => {
  const stranger = givenBy(await own.service.client({ account: 'stranger' }));
  expect(await own.given.device({ name: 'near' })).toBe('near@acme');
  expect(await stranger.device({ name: 'near' })).toBe('near@stranger');
});

it('belongs to exactly one group or asset', async () => {
  const [id_group, id_asset] = [await own.given.group(), await own.given.asset()];
  const id = await own.given.device({ id_group });
  const before = await shown(id);
  const body = { name: 'd', type: 't' };
  for (const parents of [
    {},
    { id_group, id_asset },
    { id_group: null, id_asset: null },
    { id_group: 'a@b', id_asset: 'a@b' },
  ])
    expect(summarize(await own.api.post('/devices/', { ...body, ...parents }))).toBe('4003 id_asset id_group');
  for (const parents of [
    { id_group, id_asset },
    { id_group: null, id_asset: null },
  ])
    expect(summarize(await own.api.put(at('devices', id), parents))).toMatch(/^4003 (id_asset )?id_group$/);
  expect(await shown(id)).toEqual(before);
  expect(summarize(await own.api.post('/devices/', { ...body, id_group, id_asset: null }))).toBe('2001');
});

it('moves from a group to an asset and back', async () => {
  const [id_group, id_asset] = [await own.given.group(), await own.given.asset()];
  const id = await own.given.device({ id_group });
  const places = async () => [
    (await own.api.get(at('groups', id_group, 'devices', id))).status,
    (await own.api.get(at('assets', id_asset, 'devices', id))).status,
  ];
  const { id_group: _, ...rest } = await shown(id);
  expect((await own.api.put(at('devices', id), { id_asset })).body.details).toEqual({ ...rest, id_asset, version: 1 });
  expect(await places()).toEqual([404, 200]);
  expect(summarize(await own.api.put(at('devices', id), { id_asset: null }))).toMatch(/^4003 id_asset/);
  expect((await own.api.put(at('devices', id), { id_group, id_asset: null })).body.details).toEqual({
    ...rest,
    id_group,
    version: 2,
  });
  expect(await places()).toEqual([200, 404]);
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
])('takes lon and lat together on POST: %s', async (_, place, expected) => {
  const reply = await own.api.post('/devices/', {
    name: 'placed',
    type: 't',
    id_group: await own.given.group(),
    ...place,
  });
  expect(summarize(reply)).toBe(expected);
  if (expected !== '2001') return;
  const { lon = null, lat = null } = await shown(idOf(reply.headers.location));
  expect({ lon, lat }).toEqual(place);
});

it('changes one of lon and lat of a device that has a place, and takes a place away whole', async () => {
  const id = await own.given.device({ lon: 1.5, lat: 2.5 });
  const place = async () => {
    const { lon, lat } = await shown(id);
    return [lon, lat];
  };
  const put = async (body: object) => summarize(await own.api.put(at('devices', id), body));
  expect([await put({ lon: 3 }), await place()]).toEqual(['2005', [3, 2.5]]);
  expect([await put({ lat: -4 }), await place()]).toEqual(['2005', [3, -4]]);
  for (const body of [{ lon: null }, { lat: null }, { lon: null, lat: 1 }])
    expect(await put(body)).toMatch(/^4003 (lat|lon)/);
  expect(await place()).toEqual([3, -4]);
  expect([await put({ lon: null, lat: null }), await place()]).toEqual(['2005', [undefined, undefined]]);
  expect([await put({ lon: 1 }), await put({ lat: 1 }), await place()]).toEqual([
    '4003 lat',
    '4003 lon',
    [undefined, undefined],
  ]);
  expect([await put({ lon: 5, lat: 6 }), await place()]).toEqual(['2005', [5, 6]]);
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
const refused: [object | string | number, string][] = [
  ['wifi', 'networking'],
  [5, 'networking'],
  [['wifi'] as object, 'networking'],
  [{}, 'networking.type'],
  [{ type: null }, 'networking.type'],
  [{ type: 'bluetooth' }, 'networking.type'],
  [{ type: 'WIFI' }, 'networking.type'],
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

it.each(accepted.map((networking) => [networking]))('accepts the network %j', async (networking) => {
  expect((await shown(await own.given.device({ networking }))).networking).toEqual(networking);
});

it.each(refused)('refuses the network %j', async (networking, fields) => {
  const id = await own.given.device({ networking: { type: 'wifi' } });
  const { id_group } = await shown(id);
  expect(summarize(await own.api.post('/devices/', { name: 'd', type: 't', id_group, networking }))).toBe(
    `4003 ${fields}`,
  );
  expect(summarize(await own.api.put(at('devices', id), { networking }))).toBe(`4003 ${fields}`);
  expect(await shown(id)).toMatchObject({ networking: { type: 'wifi' }, version: 0 });
});

it('replaces networking whole', async () => {
  const id = await own.given.device({ networking: { type: 'gprs', carrier: 'c' } });
  await own.api.put(at('devices', id), { networking: { type: 'gprs', sim_card, carrier: null } });
  expect((await shown(id)).networking).toEqual({ type: 'gprs', sim_card });
});

it('changes its entity tag with its status, which changes without a new version', async () => {
  const id = await own.given.device({ id_model: await own.given.model() });
  const { etag = '' } = (await own.api.get(at('devices', id))).headers;
  // what a stream leaves behind on a device (contract 8)
  const now = own.service.now();
  await own.service.db
    .collection('devices')
    .updateOne({ id_developer: id }, { $set: { last_stream_at: now, stream_due_at: now + 60 } });
  const reply = await own.api.get(at('devices', id), { 'If-None-Match': etag });
  expect([reply.status, reply.body.status, reply.body.version]).toEqual([200, 'no_status', 0]);
  expect(reply.headers.etag).not.toBe(etag);
  // the part before the dot counts as version
  expect(summarize(await own.api.put(at('devices', id), {}, { 'If-Match': etag }))).toBe('2005');
  expect(summarize(await own.api.put(at('devices', id), {}, { 'If-Match': etag }))).toBe('4005 version');
});
