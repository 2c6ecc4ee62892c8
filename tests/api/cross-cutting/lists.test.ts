import { beforeAll, describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { type Api, createFixtures, pathOf } from '../../support/service.js';
import { wordsOf } from '../../support/words.js';

const ctx = await useTestService();
let t: number;

/** Replaces T5 by the time 5 seconds after the first object was created. */
const timed = (query: string) => query.replaceAll(/\bT(\d+(\.\d+)?)/g, (_, seconds) => String(t + Number(seconds)));

/** Requests a list and formats it as `total: label label …`. */
async function list(api: Api, path: string, label: (object: Record<string, string>) => string): Promise<string> {
  const { status, text, body } = await api.get(timed(path));
  if (status !== 200) return text;
  expect(Object.keys(body)).toEqual(['total_documents', 'result']);
  return [`${body.total_documents}:`, ...body.result.map(label)].join(' ');
}
const byName = (path: string) => list(ctx.api, path, ({ name = '' }) => name);

const parentFields = {
  projects: undefined,
  services: 'id_project',
  groups: 'id_service',
  assets: 'id_group',
  models: undefined,
} as const;
type Plural = keyof typeof parentFields;
const plurals = Object.keys(parentFields) as Plural[];
const parents = new Map<string, [string, string]>();

/** Creates of each type d and b at T0, c and a at T5; carol updates c at T9. */
const [bob, carol] = [await ctx.service.client({ username: 'bob' }), await ctx.service.client({ username: 'carol' })];
// parents are objects under test as well, so that the lists contain nothing else
const create = async (api: Api, plural: Plural, name: string, second: boolean, fields: object = {}) => {
  const field = parentFields[plural];
  const parent = field === undefined ? undefined : parents.get(plural)?.[second ? 1 : 0];
  const body = {
    name,
    ...(plural === 'projects' && { id_customer: second ? 'c-2' : 'c-1' }),
    ...(field && { [field]: parent }),
    ...fields,
  };
  expect(summarize(await api.post(`/${plural}/`, body))).toBe('2001');
};
parents.set('services', ['d@acme', 'b@acme']).set('groups', ['d@acme', 'b@acme']).set('assets', ['d@acme', 'b@acme']);
t = ctx.service.now();
for (const plural of plurals) {
  await create(ctx.api, plural, 'd', false, { description: 'm', enabled: false });
  await create(bob, plural, 'b', true);
}
ctx.service.advance(5);
for (const plural of plurals) {
  await create(ctx.api, plural, 'c', false, { description: 'k' });
  await create(bob, plural, 'a', false, { description: 'm' });
}
ctx.service.advance(4);
for (const plural of plurals) expect(summarize(await carol.put(pathOf(plural, 'c@acme'), {}))).toBe('2005');
ctx.service.advance(1);

describe.each(plurals)('a list of %s', (plural) => {
  it.each([
    ['', '4: a b c d'],
    ['name=b', '1: b'],
    ['name=%20b%20', '1: b'],
    ['name=nothing', '0:'],
    ['name=B', '0:'],
    ['enabled=0', '1: d'],
    ['enabled=false', '1: d'],
    ['enabled=1', '3: a b c'],
    ['enabled=true', '3: a b c'],
    ['owner=alice', '2: c d'],
    ['owner=bob', '2: a b'],
    ['owner=carol', '0:'],
    ['updater=carol', '1: c'],
    ['updater=bob', '2: a b'],
    ['created_at=T0', '2: b d'],
    ['created_at=T0.5', '0:'],
    ['created_at_from=T5', '2: a c'],
    ['created_at_from=T6', '0:'],
    ['created_at_to=T0', '2: b d'],
    ['created_at_to=T4.999', '2: b d'],
    ['created_at_from=T0&created_at_to=T5', '4: a b c d'],
    ['created_at_from=T5&created_at_to=T5', '2: a c'],
    ['created_at_from=T1&created_at_to=T4', '0:'],
    ['created_at=T0&created_at_from=T5', '0:'],
    ['created_at=T0&created_at_to=T5', '2: b d'],
    ['updated_at=T9', '1: c'],
    ['updated_at_from=T5', '2: a c'],
    ['updated_at_to=T5', '3: a b d'],
    ['updated_at_from=T5&updated_at_to=T8', '1: a'],
    ['name=b&enabled=0', '0:'],
    ['owner=alice&enabled=1&created_at_from=T5', '1: c'],
    ['order=1', '4: a b c d'],
    ['order=-1', '4: d c b a'],
    ['max=2', '4: a b'],
    ['max=1000', '4: a b c d'],
    ['max=1&offset=1', '4: b'],
    ['max=2&offset=1&order=-1', '4: c b'],
    ['offset=0', '4: a b c d'],
    ['offset=3', '4: d'],
    ['offset=4', '4:'],
    ['offset=999999999', '4:'],
    ['max=1&offset=7', '4:'],
    ['enabled=1&max=1', '3: a'],
    ['enabled=1&offset=5', '3:'],
    ['name=nothing&offset=5', '0:'],
  ])('answers ?%s with %s', async (query, expected) => {
    expect(await byName(`/${plural}/?${query}`)).toBe(expected);
  });

  it.each([
    ['name', 'a b c d'],
    ['id_developer', 'a b c d'],
    ['description', 'b c d a'],
    ['enabled', 'd b c a'],
    ['owner', 'd c b a'],
    ['updater', 'd b a c'],
    ['created_at', 'd b c a'],
    ['updated_at', 'd b a c'],
    ['version', 'd b a c'],
  ])('sorts by %s: missing first, then ties by creation, all reversed by order=-1', async (field, expected) => {
    expect(await byName(`/${plural}/?sort=${field}`)).toBe(`4: ${expected}`);
    expect(await byName(`/${plural}/?sort=${field}&order=1`)).toBe(`4: ${expected}`);
    expect(await byName(`/${plural}/?sort=${field}&order=-1`)).toBe(`4: ${expected.split(' ').reverse().join(' ')}`);
    const paged = [0, 1, 2, 3].map(async (offset) =>
      (await byName(`/${plural}/?sort=${field}&max=1&offset=${offset}`)).slice(3),
    );
    expect((await Promise.all(paged)).join(' ')).toBe(expected);
  });
});

it.each([
  ['/projects/', 'id_customer'],
  ['/services/', 'id_project'],
  ['/groups/', 'id_service'],
  ['/assets/', 'id_group'],
])('filters and sorts %s by %s', async (path, field) => {
  const [one, two] = field === 'id_customer' ? ['c-1', 'c-2'] : ['d@acme', 'b@acme'];
  expect(await byName(`${path}?${field}=${one}`)).toBe('3: a c d');
  expect(await byName(`${path}?${field}=${two}`)).toBe('1: b');
  expect(await byName(`${path}?${field}=nothing`)).toBe('0:');
  const expected = field === 'id_customer' ? 'd c a b' : 'b d c a';
  expect(await byName(`${path}?sort=${field}`)).toBe(`4: ${expected}`);
  expect(await byName(`${path}?sort=${field}&order=-1`)).toBe(`4: ${expected.split(' ').reverse().join(' ')}`);
});

it.each(['projects', 'services', 'groups', 'assets', 'devices'])(
  'filters %s by an identifier of up to 100 characters',
  async (plural) => {
    if (plural !== 'devices') expect(await byName(`/${plural}/?id_developer=b%40acme`)).toBe('1: b');
    expect(await byName(`/${plural}/?id_developer=no%20identifier`)).toBe('0:');
    expect(await byName(`/${plural}/?id_developer=${'x'.repeat(100)}`)).toBe('0:');
    expect(summarize(await ctx.api.get(`/${plural}/?id_developer=${'x'.repeat(101)}`))).toBe('4004 id_developer');
  },
);

it('filters by the longest identifiers, those of an account of 60 characters', async () => {
  const api = await ctx.service.client({ account: 'a'.repeat(60) });
  const fixtures = createFixtures(api);
  const id_group = await fixtures.group({ name: 'g'.repeat(50) });
  await fixtures.device({ id_group });
  const query = `id_group=${encodeURIComponent(id_group)}`;
  expect((await api.get(`/devices/?${query}`)).body.total_documents).toBe(1);
  expect((await api.get(`/events/?${query}`)).status).toBe(200);
  expect((await api.patch(`/devices/?${query}&confirm=1`, { type: 'pump' })).body.code).toBe(2005);
});

it.each([
  ['project', undefined, undefined],
  ['service', 'id_project', 'project'],
  ['group', 'id_service', 'service'],
  ['asset', 'id_group', 'group'],
  ['model', undefined, undefined],
] as const)('sorts names of a %s by bytes, not by locale', async (type, field, parentType) => {
  const api = await ctx.service.client({ account: `sorted-${type}` });
  const fixtures = createFixtures(api);
  const parentField = field === undefined ? {} : { [field]: await fixtures[parentType]() };
  for (const name of ['b', '\u00e9', '\u{1F6F0}', 'B', 'a', '\uffee', '10', '9'])
    await fixtures[type]({ name, ...parentField });
  const shown = (await api.get(`/${type}s/`)).body.result.map(({ name }: { name: string }) => name);
  expect(shown).toEqual(['10', '9', 'B', 'a', 'b', '\u00e9', '\uffee', '\u{1F6F0}']);
});

describe('children', () => {
  it.each([
    ['/projects/d@acme/services/', '3: a c d'],
    ['/projects/b@acme/services/', '1: b'],
    ['/projects/a@acme/services/', '0:'],
    ['/services/d@acme/groups/', '3: a c d'],
    ['/groups/d@acme/assets/', '3: a c d'],
    ['/groups/d@acme/devices/', '0:'],
    ['/assets/d@acme/devices/', '0:'],
    ['/projects/d@acme/services/?enabled=1&sort=created_at&order=-1', '2: a c'],
    ['/groups/d@acme/assets/?max=1&offset=1', '3: c'],
    ['/services/d@acme/groups/?id_service=b%40acme', '0:'],
    ['/services/d@acme/groups/?created_at_to=T0', '1: d'],
    ['/groups/d@acme/assets/?offset=9', '3:'],
  ])('GET %s lists %s', async (path, expected) => {
    expect(await byName(path)).toBe(expected);
  });

  it.each([
    ['/projects/d@acme/services/b@acme/', '4041'],
    ['/services/b@acme/groups/d@acme/', '4041'],
    ['/groups/b@acme/assets/d@acme/', '4041'],
    ['/projects/nobody@acme/services/?max=0', '4004 max'],
    ['/projects/d@acme/services/?color=1', '4004 color'],
    ['/projects/d@acme/services/d@acme/?max=1', '4004 max'],
    ['/groups/d@acme/devices/?geo_lon=1', '4004 geo_distance geo_lat'],
  ])('GET %s is rejected with %s', async (path, expected) => {
    expect(summarize(await ctx.api.get(path))).toBe(expected);
  });
});

const allPlurals = ['projects', 'services', 'groups', 'assets', 'models', 'devices'];
const invalidIntegers = [
  ...wordsOf('abc 1.5 5.0 0x10 1e2 %205 5%20 +5 %2B5 --5 1_0 1,0 Infinity NaN true null %D9%A5 %EF%BC%95 5%00'),
  '',
  '9'.repeat(30),
];
const invalidTimes = [...wordsOf('yesterday 2020-01-01 0x10 %205 +5 1..2 .5 5. -1 NaN Infinity 1e400 1,5 1%00'), ''];
const invalidTexts = ['', 'x'.repeat(51), '%F0%9F%9B%B0'.repeat(51), 'a%00'];
const invalidValues: Record<string, readonly string[]> = {
  max: ['0', '-1', '1001', ...invalidIntegers],
  offset: ['-1', ...invalidIntegers],
  order: ['0', '2', '-2', '01', 'asc', 'desc', ...invalidIntegers],
  sort: [
    ...wordsOf(`
      nope NAME -name name,owner name%00 _id __v account parent properties networking location __proto__ constructor
      $natural properties.a digest
    `),
    '',
  ],
  enabled: ['', '2', '-1', '01', 'yes', 'TRUE', 'null', '1.0', '%201'],
  name: ['%20', 'a%07', ...invalidTexts],
  owner: invalidTexts,
  updater: invalidTexts,
  created_at: invalidTimes,
  created_at_from: invalidTimes,
  created_at_to: invalidTimes,
  updated_at: invalidTimes,
  updated_at_from: invalidTimes,
  updated_at_to: invalidTimes,
};

it.each(Object.entries(invalidValues))('rejects a malformed %s in every list', async (param, values) => {
  for (const plural of allPlurals)
    for (const value of values) {
      const query = `${param}=${value}`;
      expect([query, summarize(await ctx.api.get(`/${plural}/?${query}`))]).toEqual([query, `4004 ${param}`]);
    }
});

it.each<[query: string, faults: string]>([
  ['color=1', 'color'],
  ['limit=5', 'limit'],
  ['Name=x', 'Name'],
  ['name[]=x', 'name[]'],
  ['max[0]=1', 'max[0]'],
  ['=1', ''],
  ['created_at_gt=1', 'created_at_gt'],
  ['name_from=a', 'name_from'],
  ['networking.a=1', 'networking.a'],
  ['version=0', 'version'],
  ['service.apikey=x', 'service.apikey'],
  ['_m=1', '_m'],
  ['name', 'name'],
  ['color', 'color'],
  ['name=b&name=b', 'name'],
  ['max=1&max=2', 'max'],
  ['name=b&n%61me=c', 'name'],
  ['name=b&name=', 'name'],
  ['name=%', 'name'],
  ['name=%zz', 'name'],
  ['name=%c3', 'name'],
  ['name=%ed%a0%80', 'name'],
  ['%zz=1', '%zz'],
  ['max=0&offset=-1&sort=x&order=x&enabled=x&color=1', 'color enabled max offset order sort'],
])('rejects ?%s in every list', async (query, faults) => {
  for (const plural of allPlurals)
    expect([plural, summarize(await ctx.api.get(`/${plural}/?${query}`))]).toEqual([plural, `4004 ${faults}`]);
});

it.each(['created_at', 'updated_at'])('rejects a range of %s that ends before it begins', async (field) => {
  for (const plural of allPlurals)
    expect(summarize(await ctx.api.get(`/${plural}/?${field}_from=5&${field}_to=4.5`))).toMatch(
      new RegExp(`^4004 (${field}_from|${field}_to)`),
    );
});

it.each([
  ['projects', ['id_project', 'description', 'status', 'type', 'id_model']],
  ['services', ['id_customer', 'id_service', 'description', 'status']],
  ['groups', ['id_group', 'description', 'properties']],
  ['assets', ['id_asset', 'id_model', 'description', 'properties']],
  ['models', ['id_developer', 'id_model', 'description', 'properties', 'id_group']],
  [
    'devices',
    wordsOf(`
      id_device id_customer lon lat checksum time_zone frequency_stream networking networking.type last_stream_at
  `),
  ],
])('rejects on %s parameters outside its table: %s', async (plural, params) => {
  for (const param of params)
    expect([param, summarize(await ctx.api.get(`/${plural}/?${param}=1`))]).toEqual([param, `4004 ${param}`]);
});

describe('a list of devices', () => {
  let api: Api;
  const labels: Record<string, string> = {
    'gauge@field': '1',
    'gauge-2@field': '2',
    'alarm@field': '3',
    'zebra@field': '4',
  };
  const devices = (query: string) =>
    list(api, `/devices/?${query}`, ({ id_developer = '' }) => labels[id_developer] ?? id_developer);
  let now: number;

  beforeAll(async () => {
    api = await ctx.service.client({ account: 'field' });
    const [bob, carol] = [
      await ctx.service.client({ account: 'field', username: 'bob' }),
      await ctx.service.client({ account: 'field', username: 'carol' }),
    ];
    const fixtures = createFixtures(api);
    const id_project = await fixtures.project({ name: 'P1' });
    const id_service = await fixtures.service({ name: 'S1', id_project });
    const id_group = await fixtures.group({ name: 'G1', id_service });
    const id_asset = await fixtures.asset({ name: 'A1', id_group });
    await fixtures.group({ name: 'G2', id_service });
    await fixtures.service({ name: 'S2', id_project });
    const id_model = await fixtures.model({ name: 'M1' });
    t = ctx.service.now();
    await fixtures.device({
      name: 'gauge',
      id_group,
      id_model,
      description: 'first',
      sensor: 'temp',
      firmware: '1.0',
      checksum: 'a'.repeat(40),
      time_zone: 'UTC',
      frequency_status: 10,
      frequency_stream: 20,
      lon: 0,
      lat: 0,
      networking: { type: 'ethernet', conn_address: '192.0.2.1' },
    });
    await fixtures.device({
      name: 'gauge',
      id_asset,
      type: 'meter',
      sensor: 'wind',
      lon: 10,
      lat: 5,
      networking: { type: 'gprs', sim_card: '8934'.padEnd(18, '0'), telephone_number: '600', carrier: 'c1' },
    });
    ctx.service.advance(5);
    await createFixtures(bob).device({
      name: 'alarm',
      id_group: 'G2@field',
      enabled: 0,
      frequency_status: 5,
      networking: { type: 'wifi', conn_address: '::1' },
    });
    await fixtures.device({
      name: 'zebra',
      id_group,
      type: 'meter',
      description: '',
      firmware: '2.0',
      frequency_stream: 7,
      lon: -170,
      lat: 5,
      networking: { type: 'zigbee', conn_address: '00:1b:44:11:3a:b7' },
    });
    ctx.service.advance(4);
    await carol.put(pathOf('devices', 'gauge@field'), {});
    ctx.service.advance(1);
    now = ctx.service.now();
    // deadlines that streams set on a device (reference/devices.md#deadlines)
    const setDeadlines = (id: string, set: Record<string, number>) =>
      ctx.service.db.collection('devices').updateOne({ id_developer: id }, { $set: set });
    await setDeadlines('gauge@field', {
      last_stream_at: now - 5,
      last_status_at: now - 5,
      stream_due_at: now + 100,
      status_due_at: now + 7,
      stream_safe_until: now + 6,
      status_safe_until: now + 2,
      stream_late_from: now + 110,
      status_late_from: now + 8,
    });
    await setDeadlines('gauge-2@field', {
      last_status_at: now - 5,
      status_due_at: now + 3,
      status_safe_until: now + 3,
      status_late_from: now + 4,
    });
    await setDeadlines('alarm@field', {
      last_stream_at: now - 9,
      stream_due_at: now + 50,
      stream_safe_until: now + 1,
      stream_late_from: now + 60,
    });
  });

  it.each([
    ['', '4: 3 2 1 4'],
    ['name=gauge', '2: 2 1'],
    ['id_developer=gauge%40field', '1: 1'],
    ['enabled=0', '1: 3'],
    ['owner=bob', '1: 3'],
    ['updater=carol', '1: 1'],
    ['created_at=T5', '2: 3 4'],
    ['created_at_from=T5', '2: 3 4'],
    ['created_at_to=T0', '2: 2 1'],
    ['updated_at=T9', '1: 1'],
    ['updated_at_from=T5', '3: 3 1 4'],
    ['updated_at_to=T5', '3: 3 2 4'],
    ['_t=str', '2: 3 1'],
    ['_t=sta', '2: 2 1'],
    ['type=gateway', '2: 3 1'],
    ['type=meter', '2: 2 4'],
    ['status=ok', '1: 1'],
    ['status=no_data', '1: 2'],
    ['status=no_status', '1: 3'],
    ['status=disconnected', '1: 4'],
    ['status=ok&_t=sta', '1: 1'],
    ['status=disconnected&_t=str', '0:'],
    ['description=first', '1: 1'],
    ['sensor=wind', '1: 2'],
    ['firmware=2.0', '1: 4'],
    ['conn_address=192.0.2.1', '1: 1'],
    ['conn_address=::1', '1: 3'],
    ['conn_type=ethernet', '1: 1'],
    ['conn_type=gprs', '1: 2'],
    ['conn_type=wifi', '1: 3'],
    ['conn_type=zigbee', '1: 4'],
    ['sim_card=893400000000000000', '1: 2'],
    ['telephone_number=600', '1: 2'],
    ['carrier=c1', '1: 2'],
    ['id_project=P1%40field', '4: 3 2 1 4'],
    ['id_service=S1%40field&order=-1', '4: 4 1 2 3'],
    ['id_service=S2%40field', '0:'],
    ['id_project=nobody%40field', '0:'],
    ['id_project=P1%40field&id_group=G2%40field', '1: 3'],
    ['id_service=S2%40field&id_group=G2%40field', '0:'],
    ['id_group=G1%40field', '3: 2 1 4'],
    ['id_group=G2%40field', '1: 3'],
    ['id_asset=A1%40field', '1: 2'],
    ['id_model=M1%40field', '1: 1'],
    ['geo_lon=9.9&geo_lat=5&geo_distance=20000', '1: 2'],
    ['geo_lon=9.9&geo_lat=5&geo_distance=20000&type=gateway', '0:'],
    ['type=meter&max=1', '2: 2'],
    ['type=meter&order=-1&offset=1', '2: 2'],
    ['status=ok&offset=3', '1:'],
    ['sort=status&max=2&offset=1', '4: 2 3'],
  ])('answers ?%s with %s', async (query, expected) => {
    expect(await devices(query)).toBe(expected);
  });

  it.each([
    ['device', '3 2 1 4'],
    ['id_developer', '3 2 1 4'],
    ['name', '3 1 2 4'],
    ['type', '1 3 2 4'],
    ['id_group', '2 1 4 3'],
    ['id_asset', '1 3 4 2'],
    ['id_model', '2 3 4 1'],
    ['description', '2 3 4 1'],
    ['sensor', '3 4 1 2'],
    ['firmware', '2 3 1 4'],
    ['checksum', '2 3 4 1'],
    ['time_zone', '2 3 4 1'],
    ['frequency_status', '3 1 2 4'],
    ['frequency_stream', '4 1 2 3'],
    ['lon', '3 4 1 2'],
    ['lat', '3 1 2 4'],
    ['enabled', '3 1 2 4'],
    ['status', '4 2 3 1'],
    ['last_stream_at', '2 4 3 1'],
    ['last_status_at', '3 4 1 2'],
    ['stream_due_at', '2 4 3 1'],
    ['status_due_at', '3 4 2 1'],
    ['owner', '1 2 4 3'],
    ['updater', '2 4 3 1'],
    ['created_at', '1 2 3 4'],
    ['updated_at', '2 3 4 1'],
    ['version', '2 3 4 1'],
  ])('sorts by %s: missing first, then ties by creation, all reversed by order=-1', async (field, expected) => {
    expect(await devices(`sort=${field}`)).toBe(`4: ${expected}`);
    expect(await devices(`sort=${field}&order=-1`)).toBe(`4: ${expected.split(' ').reverse().join(' ')}`);
  });

  it('shows the same statuses that it filters by, as time passes', async () => {
    const statuses = async () =>
      (await api.get('/devices/?sort=created_at')).body.result.map(({ status }: { status: string }) => status);
    expect(await statuses()).toEqual(['ok', 'no_data', 'no_status', 'disconnected']);
    ctx.service.advance(4);
    expect(await statuses()).toEqual(['ok', 'disconnected', 'no_status', 'disconnected']);
    expect(await devices('status=disconnected')).toBe('2: 2 4');
    ctx.service.advance(4);
    expect(await statuses()).toEqual(['no_status', 'disconnected', 'no_status', 'disconnected']);
    expect(await devices('status=no_status')).toBe('2: 3 1');
    ctx.service.advance(200);
    expect(await devices('status=disconnected&sort=status')).toBe('4: 1 2 3 4');
  });

  it.each([
    ['_t=x', '_t'],
    ['_t=STR', '_t'],
    ['_t=str&_t=sta', '_t'],
    ['status=OK', 'status'],
    ['status=late', 'status'],
    ['status=ok,no_data', 'status'],
    ['conn_type=bluetooth', 'conn_type'],
    [`sim_card=${'1'.repeat(17)}`, 'sim_card'],
    [`sim_card=${'1'.repeat(19)}`, 'sim_card'],
    [`telephone_number=${'1'.repeat(16)}`, 'telephone_number'],
    [`carrier=${'c'.repeat(51)}`, 'carrier'],
    [`firmware=${'f'.repeat(51)}`, 'firmware'],
    [`sensor=${'f'.repeat(51)}`, 'sensor'],
    [`type=${'f'.repeat(51)}`, 'type'],
    [`description=${'f'.repeat(201)}`, 'description'],
    ['description=', 'description'],
    ['geo_lon=1', 'geo_distance geo_lat'],
    ['geo_lat=1', 'geo_distance geo_lon'],
    ['geo_distance=1', 'geo_lat geo_lon'],
    ['geo_lon=1&geo_lat=1', 'geo_distance'],
    ['geo_lon=1&geo_distance=1', 'geo_lat'],
    ['geo_lat=1&geo_distance=1', 'geo_lon'],
    ['geo_lon=1&geo_lat=1&geo_distance=-1', 'geo_distance'],
    ['geo_lon=180.1&geo_lat=-90.1&geo_distance=1', 'geo_lat geo_lon'],
    ['geo_lon=x&geo_lat=0x1&geo_distance=NaN', 'geo_distance geo_lat geo_lon'],
    ['geo_lon=1&geo_lat=1&geo_distance=Infinity', 'geo_distance'],
  ])('rejects ?%s', async (query, faults) => {
    expect(summarize(await api.get(`/devices/?${query}`))).toBe(`4004 ${faults}`);
  });
});

describe('geo_lon, geo_lat and geo_distance', () => {
  let api: Api;
  const locations = {
    origin: [0, 0],
    east: [0.01, 0],
    pole: [55, 90],
    'near pole': [-120, 89.99],
    west: [-179.995, 0],
    'far east': [179.995, 0],
    south: [0, -90],
  } as const;
  beforeAll(async () => {
    api = await ctx.service.client({ account: 'globe' });
    const fixtures = createFixtures(api);
    const id_group = await fixtures.group();
    for (const [name, [lon, lat]] of Object.entries(locations)) await fixtures.device({ name, id_group, lon, lat });
    await fixtures.device({ name: 'nowhere', id_group });
  });
  const everyName = 'origin east pole near+pole west far+east south';

  it.each<[string, number, number, number | string, string]>([
    ['a single point', 0, 0, 0, 'origin'],
    ['an empty place', 0.005, 0, 0, ''],
    ['devices within the radius', 0, 0, 1100, 'origin'],
    ['devices within a larger radius', 0, 0, 1130, 'origin east'],
    ['the pole, whatever the longitude', 10, 90, 1, 'pole'],
    ['beyond the pole', 60, 89.999, 1230, 'pole near+pole'],
    ['the south pole', -77, -90, 1, 'south'],
    ['both sides of the antimeridian', 180, 0, 600, 'west far+east'],
    ['both sides of the antimeridian from the other', -180, 0, 600, 'west far+east'],
    ['one side of the antimeridian', 179.995, 0, 1100, 'far+east'],
    ['across the antimeridian', 179.995, 0, 1130, 'west far+east'],
    ['more than a hemisphere', 0, 0, 10_030_000, 'origin east pole near+pole south'],
    ['all but the antipodes', 0, 0, 20_036_000, 'origin east pole near+pole south'],
    ['the whole earth', 0, 0, 20_037_600, everyName],
    ['more than the earth', 120, 45, 1e9, everyName],
    ['far more than the earth', -120, -45, '1e300', everyName],
  ])('select %s', async (_, lon, lat, distance, expected) => {
    const shown = await list(
      api,
      `/devices/?geo_lon=${lon}&geo_lat=${lat}&geo_distance=${distance}&sort=created_at`,
      ({ name = '' }) => name.replace(' ', '+'),
    );
    const names = expected === '' ? [] : expected.split(' ');
    expect(shown).toBe([`${names.length}:`, ...names].join(' '));
  });
});

describe('a list of device configs', () => {
  let path: string;
  const configs = (query: string) => list(ctx.api, `${path}?${query}`, ({ name, version }) => `${name}${version}`);
  beforeAll(async () => {
    const bob = await ctx.service.client({ username: 'bob' });
    path = pathOf('devices', await ctx.fixtures.device(), 'deviceconfigs');
    t = ctx.service.now();
    await ctx.api.post(path, { name: 'b', version: '2', file: 'YWJj', date_deployed: t + 1.5 });
    await bob.post(path, { name: 'a', version: '1', file: 'YQ==' });
    ctx.service.advance(5);
    await ctx.api.post(path, { name: 'b', version: '1', file: 'YQ==', date_deployed: t + 3 });
  });

  it.each([
    ['', '3: b2 a1 b1'],
    ['order=1', '3: b2 a1 b1'],
    ['order=-1', '3: b1 a1 b2'],
    ['name=b', '2: b2 b1'],
    ['version=1', '2: a1 b1'],
    ['name=b&version=1', '1: b1'],
    ['owner=bob', '1: a1'],
    ['updater=alice', '2: b2 b1'],
    ['date_deployed=T1.5', '1: b2'],
    ['date_deployed_from=T1.5', '2: b2 b1'],
    ['date_deployed_to=T2', '1: b2'],
    ['date_deployed_from=T2&date_deployed_to=T3', '1: b1'],
    ['created_at=T0', '2: b2 a1'],
    ['created_at_from=T1', '1: b1'],
    ['created_at_to=T0', '2: b2 a1'],
    ['updated_at=T5', '1: b1'],
    ['updated_at_from=T5', '1: b1'],
    ['updated_at_to=T4', '2: b2 a1'],
    ['max=1', '3: b2'],
    ['max=2&offset=1', '3: a1 b1'],
    ['offset=9', '3:'],
    ['sort=name', '3: a1 b2 b1'],
    ['sort=version', '3: a1 b1 b2'],
    ['sort=size', '3: a1 b1 b2'],
    ['sort=checksum', '3: a1 b1 b2'],
    ['sort=date_deployed', '3: a1 b2 b1'],
    ['sort=owner', '3: b2 b1 a1'],
    ['sort=updater&order=-1', '3: a1 b1 b2'],
    ['sort=device', '3: b2 a1 b1'],
    ['sort=created_at&order=-1', '3: b1 a1 b2'],
    ['sort=updated_at', '3: b2 a1 b1'],
  ])('answers ?%s with %s', async (query, expected) => {
    expect(await configs(query)).toBe(expected);
  });

  it.each([
    ...wordsOf(`
      enabled=1 id_developer=x file=YQ== sort=file sort=parent max=1001 date_deployed=x size=1 name=a/b _t=str order=0
    `),
    `version=${'v'.repeat(51)}`,
  ])('rejects ?%s', async (query) => {
    expect(summarize(await ctx.api.get(`${path}?${query}`))).toBe(`4004 ${query.split('=')[0]}`);
  });

  it('rejects a range that ends before it begins', async () => {
    expect(summarize(await ctx.api.get(`${path}?date_deployed_from=2&date_deployed_to=1`))).toMatch(
      /^4004 date_deployed_(from|to)/,
    );
  });
});
