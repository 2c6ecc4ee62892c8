import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { migrate } from '../../../src/service/migrations.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { waitForEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { type Receiver, startReceiver } from '../../support/receiver.js';
import { upgradeContext } from '../../support/service.js';
import { createKey, type Follower, follow } from '../../support/sse.js';

/** Filters by properties (reference/lists.md#paths) and saved filters (reference/filters.md). */
const ctx = await useTestService({ webhook_allow_nets: ['127.0.0.0/8'], deliver: true, eventLog: true });

const namesAt = async (query: string) => {
  const { status, body } = await api.get(`/devices/?${query}&fields=name`);
  expect([query, status]).toEqual([query, 200]);
  const names = body.result.map(({ name }: { name: string }) => name).join('');
  expect([query, body.total_documents]).toEqual([query, names.length]);
  return names;
};

const api = await ctx.service.client({ account: 'fleet' });
const device = (name: string, properties?: object, more: object = {}) => ({
  ...{ resource: 'device', name, type: 'pump', id_group: 'Hall@fleet', ...(properties && { properties }) },
  ...more,
});
const id_model = 'M@fleet';
const { totals } = await sendImport(api, [
  { resource: 'project', name: 'North', id_customer: 'c' },
  { resource: 'service', name: 'Water', id_project: 'North@fleet' },
  { resource: 'group', name: 'Hall', id_service: 'Water@fleet' },
  { resource: 'group', name: 'Yard', id_service: 'Water@fleet' },
  { resource: 'model', name: 'M', properties: { volts: 12, colour: 'red', at: { room: 'A' } } },
  { resource: 'model', name: 'N', properties: { volts: 24 } },
  device('a', { volts: 12, colour: 'red', at: { room: 'A' }, on: true }),
  device('b', { volts: '12', colour: ['red'], at: 'A', on: 'true' }),
  device('c', undefined, { id_model }),
  device('d', { volts: 24, at: null }, { id_model, type: 'valve' }),
  device('e', { 'a.b': 7, 'a,b': 8, a: { b: 9 }, $where: 1, '': 2, list: [5, { x: 6 }], '~/': 3 }),
  device('f', { volts: false }, { id_model: 'N@fleet', id_group: 'Yard@fleet' }),
  device('g', undefined, { id_model: 'N@fleet' }),
  device('h'),
]);
expect(totals.failed).toBe(0);
await ctx.fixtures.device({ properties: { volts: 12 } });

describe('a filter by properties', () => {
  it.each([
    ['properties.volts=12', 'abc'],
    ['properties.volts=12.0', 'ac'],
    ['properties.volts=false', 'f'],
    ['properties.on=true', 'ab'],
    ['properties.on=1', ''],
    ['properties.volts_from=12', 'acdg'],
    ['properties.volts_from=12.5&properties.volts_to=24', 'dg'],
    ['properties.volts_to=12', 'ac'],
    ['properties.volts=24&properties.volts_from=13', 'dg'],
    ['properties.colour=red', 'acd'],
    ['properties.colour=red&type=valve', 'd'],
    ['properties.colour=red&type=valve&properties.volts=12', ''],
    ['properties.colour=r', ''],
    ['properties.at.room=A', 'ac'],
    ['properties./at/room=A', 'ac'],
    ['properties.at=A', 'b'],
    ['properties.at=null', ''],
    ['properties.a.b=9', 'e'],
    ['properties./a.b=7', 'e'],
    ['properties./a,b=8', 'e'],
    ['properties.$where=1', 'e'],
    ['properties./=2', 'e'],
    ['properties./~0~1=3', 'e'],
    ['properties./list/0=5', 'e'],
    ['properties./list/1/x=6', 'e'],
    ['properties.list=5', ''],
    ['properties.none=1', ''],
    ['properties.volts_from=12&id_group=Yard@fleet', ''],
    ['properties.volts=12&q=B', 'b'],
    ['properties.volts=12&order=-1', 'cba'],
    ['properties.volts=12&sort=status', 'abc'],
    ['properties.volts=12&max=9&offset=0', 'abc'],
  ])('%s finds %s', async (query, expected) => {
    const names = await namesAt(query);
    expect(query.includes('sort') ? [...names].sort().join('') : names).toBe(expected);
  });

  it('counts, exports, changes and continues lists', async () => {
    expect((await api.get('/devices/counts/?by=type&properties.colour=red')).body).toEqual({
      total_documents: 3,
      result: [
        { type: 'pump', count: 2 },
        { type: 'valve', count: 1 },
      ],
    });
    const csv = await api.get('/devices/?properties.colour=red&format=csv&fields=name');
    expect(csv.text).toBe('name\r\na\r\nc\r\nd\r\n');
    const first = await api.get('/devices/?properties.colour=red&after=0&max=2&fields=name');
    expect([first.body.total_documents, first.body.next]).toEqual([3, 'c@fleet']);
    expect((await api.get('/devices/?properties.colour=red&after=c@fleet&fields=name')).body.result).toEqual([
      { name: 'd' },
    ]);
    const children = await api.get('/groups/Hall@fleet/devices/?properties.volts=24&fields=name');
    expect(children.body).toEqual({ total_documents: 2, result: [{ name: 'd' }, { name: 'g' }] });
    const patch = (query: string) => api.patch(`/devices/?properties.colour=red&${query}`, { firmware: '7' });
    expect((await patch('type=pump')).body).toEqual({ code: 2006, message: 'would change', details: { matched: 2 } });
    expect(summarize(await patch('confirm=2'))).toBe('4005 matched');
    expect((await patch('type=pump&confirm=2')).body.details).toEqual({ matched: 2, changed: 2 });
    expect(await namesAt('firmware=7')).toBe('ac');
  });

  it.each([
    ['properties.volts=', 'properties.volts'],
    ['properties.volts=1&properties.volts=2', 'properties.volts'],
    ['properties.=1', 'properties.'],
    ['properties=1', 'properties'],
    ['properties.volts_from=x', 'properties.volts_from'],
    ['properties.volts_to=0x10', 'properties.volts_to'],
    ['properties.volts_from=2&properties.volts_to=1', 'properties.volts_from'],
    ['properties./a~2=1', 'properties./a~2'],
    ['properties.a,b=1', 'properties.a,b'],
    ['properties.a=1&properties.b=1&properties.c=1&properties.d=1', 'properties.d'],
    ['sort=properties.volts', 'sort'],
    ['properties.x=%00', 'properties.x'],
  ])('refuses ?%s', async (query, field) => {
    expect(summarize(await api.get(`/devices/?${query}`))).toBe(`4004 ${field}`);
    expect(summarize(await api.patch(`/devices/?${query}`, { firmware: '9' }))).toContain(`4004`);
  });

  it('names both meanings of a suffix where the value is no bound', async () => {
    const { body } = await api.get('/devices/?properties.ship_to=ES');
    const meanings = 'a bound of properties.ship; properties.ship_to_eq compares the path properties.ship_to';
    expect(body.details).toEqual({ 'properties.ship_to': `must be a number as ${meanings}` });
  });

  it('takes three paths, of which a range and two spellings are one', async () => {
    const range = 'properties.volts_from=1&properties.volts_to=99&properties.volts=12';
    expect(await namesAt(`${range}&properties.colour=red&properties.at.room=A&properties./at/room=A`)).toBe('ac');
    expect(summarize(await api.get('/groups/?properties.a=1'))).toBe('4004 properties.a');
  });
});

const save = (name: string, query: string, more: object = {}) => api.post('/filters/', { name, query, ...more });

describe('a saved filter', () => {
  it('is a resource', async () => {
    const created = await save('Red', 'properties.colour=red&status=disconnected', { description: 'red ones' });
    expect([created.body, created.headers.location]).toEqual([
      { code: 2001, message: 'Filter created', details: {} },
      '/filters/Red%40fleet/',
    ]);
    const shown = {
      id_developer: 'Red@fleet',
      name: 'Red',
      query: 'properties.colour=red&status=disconnected',
      description: 'red ones',
      owner: 'alice',
      updater: 'alice',
      created_at: ctx.service.now(),
      updated_at: ctx.service.now(),
      version: 0,
    };
    expect((await api.get('/filters/Red@fleet/')).body).toEqual(shown);
    expect((await api.get('/filters/')).body).toEqual({ total_documents: 1, result: [shown] });
    expect(summarize(await save('Red', 'type=pump'))).toBe('4003 name');
    const changed = await api.put('/filters/Red@fleet/', { query: 'type=pump', version: 0 });
    expect([changed.body.message, changed.body.details.query, changed.body.details.version]).toEqual([
      'Filter updated',
      'type=pump',
      1,
    ]);
    expect(summarize(await api.put('/filters/Red@fleet/', { query: 'type=valve', version: 0 }))).toBe('4005 version');
    const reader = await ctx.service.client({ account: 'fleet', scope: 'read' });
    expect((await reader.get('/filters/Red@fleet/')).status).toBe(200);
    expect(summarize(await reader.post('/filters/', { name: 'x', query: 'type=pump' }))).toBe('4031');
    expect(summarize(await ctx.api.get('/filters/Red@fleet/'))).toBe('4041');
    expect((await api.delete('/filters/Red@fleet/')).body).toEqual({
      code: 2004,
      message: 'Filter deleted',
      details: {},
    });
    expect(summarize(await api.get('/filters/Red@fleet/'))).toBe('4041');
    const events = await waitForEvents(api, 'resource=filter', 3);
    expect(events.map(({ type, id_developer, data }) => [type, id_developer, data])).toEqual([
      ['filter.created', 'Red@fleet', undefined],
      ['filter.updated', 'Red@fleet', { version: 1, changed: ['query'] }],
      ['filter.deleted', 'Red@fleet', undefined],
    ]);
  });

  it.each([
    ['', 'query'],
    ['&', 'query'],
    ['sort=name', 'query'],
    ['type=pump&max=5', 'query'],
    ['type=pump&offset=5', 'query'],
    ['type=pump&fields=name', 'query'],
    ['type=pump&format=csv', 'query'],
    ['type=pump&after=0', 'query'],
    ['filter=Red@fleet', 'query'],
    ['type=pump&type=pump', 'query'],
    ['type=', 'query'],
    ['status=asleep', 'query'],
    ['nonsense', 'query'],
    ['type=%ff', 'query'],
    ['properties.a=1&properties.b=1&properties.c=1&properties.d=1', 'query'],
    ['geo_lon=1', 'query'],
  ])('refuses the query %j', async (query, field) => {
    expect(summarize(await save('refused', query))).toBe(`4003 ${field}`);
    expect(summarize(await api.get('/filters/refused@fleet/'))).toBe('4041');
  });

  it('says which parameter is wrong', async () => {
    expect((await save('refused', 'type=pump&max=5')).body.details).toEqual({ query: 'max: unknown parameter' });
    expect(summarize(await api.post('/filters/', { name: 'refused' }))).toBe('4003 query');
  });

  it('selects devices wherever they are filtered', async () => {
    await save('Twelve', 'properties.volts=12&type=pump');
    await save('Hall', 'id_group=Hall@fleet');
    const filter = 'filter=Twelve@fleet';
    expect(await namesAt(filter)).toBe('abc');
    expect(await namesAt(`${filter}&q=B`)).toBe('b');
    expect(await namesAt(`${filter}&type=valve`)).toBe('');
    expect(await namesAt(`${filter}&status=disconnected&order=-1`)).toBe('cba');
    expect(await namesAt('filter=Hall@fleet&id_group=Yard@fleet')).toBe('');
    expect(await namesAt('filter=Hall@fleet&id_group=Hall@fleet&type=valve')).toBe('d');
    expect((await api.get(`/devices/counts/?by=id_model&${filter}`)).body).toEqual({
      total_documents: 3,
      result: [
        { id_model: null, count: 2 },
        { id_model: 'M@fleet', count: 1 },
      ],
    });
    expect((await api.get(`/devices/?${filter}&format=ndjson&fields=name`)).text).toBe(
      '{"name":"a"}\n{"name":"b"}\n{"name":"c"}\n',
    );
    expect((await api.get(`/groups/Hall@fleet/devices/?${filter}&fields=name`)).body.total_documents).toBe(3);
    expect((await api.patch(`/devices/?${filter}&confirm=3`, { sensor: 'light' })).body.details).toEqual({
      matched: 3,
      changed: 3,
    });
    expect(await namesAt('sensor=light')).toBe('abc');
    await api.post('/filters/', { name: 'Silent', query: 'status=ok' });
    await api.post('/streams/', { device: 'h@fleet', data: { n: 1 } });
    await api.post('/status/', { device: 'h@fleet', data: { n: 1 } });
    expect(await namesAt('filter=Silent@fleet')).toBe('h');
  });

  it('selects devices for a series', async () => {
    for (const [device, n] of [
      ['a@fleet', 1],
      ['b@fleet', 3],
      ['d@fleet', 100],
    ] as const)
      await api.post('/streams/', { device, data: { n } });
    const series = await api.get('/devices/series/?filter=Twelve@fleet&fields=n&aggregate=sum,count&every=86400');
    expect(series.body.result).toEqual([{ at: expect.any(Number), count: 2, n: { sum: 4, count: 2 } }]);
    const by = await api.get('/devices/series/?filter=Twelve@fleet&fields=n&aggregate=sum&every=86400&by=device');
    expect(by.body.result.map(({ device }: { device: string }) => device)).toEqual(['a@fleet', 'b@fleet']);
    expect(summarize(await api.get('/devices/series/?fields=n'))).toBe('4004 filter');
    expect(summarize(await api.get('/devices/series/?fields=n&filter=none@fleet'))).toBe('4004 filter');
    expect(summarize(await api.get('/devices/a@fleet/series/?fields=n&filter=Twelve@fleet'))).toBe('4004 filter');
  });

  it('that does not exist answers 4004, and together with the request it names three paths at most', async () => {
    for (const path of ['/devices/?', '/devices/counts/?by=type&', '/groups/Hall@fleet/devices/?'])
      expect(summarize(await api.get(`${path}filter=none@fleet`))).toBe('4004 filter');
    expect(summarize(await api.get('/devices/?format=csv&filter=none@fleet'))).toBe('4004 filter');
    expect(summarize(await api.patch('/devices/?filter=none@fleet', {}))).toBe('4004 filter');
    expect(summarize(await api.get('/groups/?filter=Twelve@fleet'))).toBe('4004 filter');
    await save('Two', 'properties.volts=12&properties.colour=red');
    const together = 'filter=Two@fleet&properties.volts_from=1&properties.at.room=A';
    expect(await namesAt(together)).toBe('ac');
    expect(summarize(await api.get(`/devices/?${together}&properties.x=1`))).toBe('4004 filter');
  });
});

describe('a limited key', () => {
  it('learns nothing of saved filters', async () => {
    await save('Volts', 'properties.volts=24');
    const issued = await api.post('/apikeys/', { username: 'lina', scope: 'write', id_group: 'Yard@fleet' });
    const limited = ctx.service.clientWith(issued.body.details.key);
    const refused = [
      await limited.get('/filters/'),
      await limited.get('/filters/Volts@fleet/'),
      await limited.post('/filters/', { name: 'x', query: 'type=pump' }),
      await limited.put('/filters/Volts@fleet/', { query: 'type=pump' }),
      await limited.delete('/filters/Volts@fleet/'),
    ];
    for (const name of ['Volts', 'none'])
      for (const path of ['devices/?', 'devices/counts/?by=type&', 'devices/series/?fields=n&', 'events/live/?'])
        refused.push(await limited.get(`/${path}filter=${name}@fleet`));
    refused.push(await limited.patch('/devices/?filter=Volts@fleet', { sensor: 'x' }));
    expect(refused.map(summarize)).toEqual(refused.map(() => '4031'));
  });
});

describe('events of a saved filter', () => {
  const receivers: Receiver[] = [];
  const followers: Follower[] = [];

  afterEach(async () => {
    for (const { id_developer } of (await api.get('/webhooks/')).body.result)
      await api.delete(`/webhooks/${encodeURIComponent(id_developer)}/`);
    await Promise.all(receivers.splice(0).map((receiver) => receiver.close()));
    await Promise.all(followers.splice(0).map((follower) => follower.close()));
  });
  afterAll(() => Promise.all(receivers.map((receiver) => receiver.close())));

  it('are those of devices that match after the change, for webhooks and feeds', async () => {
    await save('Kettles', 'type=kettle&id_group=Yard@fleet&properties.on=true');
    const receiver = await startReceiver();
    receivers.push(receiver);
    const hook = { name: 'Kettles', url: receiver.url, types: ['*'], filter: 'Kettles@fleet' };
    expect(summarize(await api.post('/webhooks/', { ...hook, filter: 'none@fleet' }))).toBe('4003 filter');
    expect(summarize(await api.post('/webhooks/', hook))).toBe('2001');
    expect((await api.get('/webhooks/Kettles@fleet/')).body.filter).toBe('Kettles@fleet');
    const { headers } = await createKey(ctx.service, { account: 'fleet', scope: 'read' });
    expect(summarize(await api.get('/events/live/?filter=none@fleet'))).toBe('4004 filter');
    const follower = await follow(`${ctx.service.url}/events/live/?filter=Kettles@fleet`, headers);
    followers.push(follower);

    const kettle = { type: 'kettle', id_group: 'Yard@fleet', properties: { on: true } };
    const put = (id: string, body: object) => api.put(`/devices/${id}/`, body);
    const steps = [
      await api.post('/devices/', { ...kettle, name: 'k1' }),
      await api.post('/devices/', { ...kettle, name: 'k2', type: 'pan' }),
      await put('k1@fleet', { firmware: '2' }),
      await api.post('/devices/k1@fleet/deviceconfigs/', { name: 'boot.cfg', version: '1', file: 'YQ==' }),
      // changes that follow at once do not count for this one
      await put('k2@fleet', { type: 'kettle' }),
      await put('k2@fleet', { type: 'pan' }),
      await put('k2@fleet', { firmware: '3' }),
      await put('k1@fleet', { properties: { on: false } }),
      await put('k1@fleet', { properties: { on: true } }),
      await api.put('/groups/Yard@fleet/', { description: 'none of a device' }),
      await put('k1@fleet', { id_group: 'Hall@fleet' }),
      await put('k1@fleet', { id_group: 'Yard@fleet' }),
      await api.delete('/devices/k2@fleet/'),
      await api.delete('/groups/Yard@fleet/'),
    ];
    expect(steps.map(({ body }) => body.code).join()).toBe(
      '2001,2001,2005,2001,2005,2005,2005,2005,2005,2005,2005,2005,2004,2004',
    );
    const expected = [
      ['device.created', 'k1@fleet', undefined],
      ['device.updated', 'k1@fleet', 1],
      ['deviceconfig.created', 'k1@fleet', '1'],
      ['device.updated', 'k2@fleet', 1],
      ['device.updated', 'k1@fleet', 3],
      ['device.updated', 'k1@fleet', 5],
      ['device.deleted', 'k1@fleet', undefined],
    ];
    const summarizeEvent = ({
      type,
      id_developer,
      data,
    }: {
      type: string;
      id_developer: string;
      data?: { version: number | string };
    }) => [type, id_developer, data?.version];
    await waitUntil(() => receiver.received.length >= expected.length);
    expect(receiver.events().map(summarizeEvent)).toEqual(expected);
    await waitUntil(() => follower.messages.length >= expected.length);
    expect(follower.messages.map(({ data }) => summarizeEvent(data))).toEqual(expected);
    const resumed = await follow(
      `${ctx.service.url}/events/live/?filter=Kettles@fleet&after=${follower.messages[1]?.id}`,
      headers,
    );
    followers.push(resumed);
    await waitUntil(() => resumed.messages.length >= 5);
    expect(resumed.messages.map(({ data }) => summarizeEvent(data))).toEqual(expected.slice(2));
  });

  it('keep it from being deleted while a webhook names it, whatever comes first', async () => {
    await save('Kept', 'type=pump');
    const hook = (name: string) => ({
      name,
      url: 'http://127.0.0.1:9/',
      types: ['*'],
      filter: 'Kept@fleet',
      enabled: false,
    });
    await api.post('/webhooks/', hook('W'));
    expect((await api.delete('/filters/Kept@fleet/')).body.details).toEqual({ webhooks: 'W@fleet names it' });
    expect((await api.get('/filters/Kept@fleet/')).status).toBe(200);
    await api.put('/webhooks/W@fleet/', { filter: null });
    expect(summarize(await api.delete('/filters/Kept@fleet/'))).toBe('2004');
    for (let round = 0; round < 10; round++) {
      await save('Kept', 'type=pump');
      const [created, deleted, changed] = await Promise.all([
        api.post('/webhooks/', hook(`W${round}`)),
        api.delete('/filters/Kept@fleet/'),
        api.put('/webhooks/W@fleet/', { filter: 'Kept@fleet' }),
      ]);
      const named = [created, changed].filter(({ body }) => body.code === 2001 || body.code === 2005).length;
      const { total_documents } = (await api.get('/webhooks/?filter=Kept@fleet')).body;
      expect([round, total_documents]).toEqual([round, named]);
      // both may be refused, never both done
      const outcome = summarize(deleted);
      expect([round, named > 0 && outcome === '2004']).toEqual([round, false]);
      const { status } = await api.get('/filters/Kept@fleet/');
      expect([round, status]).toEqual([round, outcome === '2004' ? 404 : 200]);
      await api.put('/webhooks/W@fleet/', { filter: null });
      await api.delete(`/webhooks/W${round}@fleet/`);
      await api.delete('/filters/Kept@fleet/');
    }
  });
});

describe('a suffix that may belong to a key', () => {
  const refused = [
    ['properties.valid_from=2020', 'properties.valid_from', 'the lower bound of properties.valid'],
    ['properties./list/0/until_to=1', 'properties./list/0/until_to', 'the upper bound of properties./list/0/until'],
    ['properties.pair_eq=x', 'properties.pair_eq', 'exactly properties.pair'],
    ['properties.rated_to=9', 'properties.rated_to', 'the upper bound of properties.rated'],
  ] as const;
  const isRefused = async ([query, param, other]: (typeof refused)[number]) => {
    const fault = `may mean the path ${param}, which ${param}_eq compares, or ${other}`;
    for (const { body } of [
      await api.get(`/devices/?${query}`),
      await api.get(`/devices/?format=csv&${query}`),
      await api.get(`/devices/counts/?by=type&${query}`),
      await api.delete(`/devices/?${query}&confirm=1`),
    ])
      expect([query, body.code, body.details]).toEqual([query, 4004, { [param]: fault }]);
    expect((await save('Ambiguous', query)).body.details).toEqual({ query: `${param}: ${fault}` });
  };

  beforeAll(async () => {
    expect(summarize(await save('Before', 'properties.valid_from=2020'))).toBe('2001');
    const properties = { valid_from: 2020, list: [{ until_to: 1 }], pair_eq: 'x' };
    for (const body of [
      { name: 'v', properties },
      { name: 'w', properties: { valid: 3000 } },
    ])
      await api.post('/devices/', { ...body, type: 'lamp', id_group: 'Hall@fleet' });
    expect(summarize(await api.put('/models/N@fleet/', { properties: { volts: 24, rated_to: 9 } }))).toBe('2005');
  });

  it.each(refused)('refuses %s', (...each) => isRefused(each));

  it.each([
    ['properties.valid_from_eq=2020', 'v'],
    ['properties.pair_eq_eq=x', 'v'],
    ['properties.valid_from_from=2020', 'v'],
    ['properties.valid_to=3000', 'w'],
    ['properties.rated_to_eq=9', 'g'],
  ])('takes %s', async (query, names) => {
    expect(await namesAt(query)).toBe(names);
  });

  it('is one of the parameter where no key has it any more, and refused where an upgrade has found it', async () => {
    const { db } = ctx.service;
    const devices = db.collection('devices');
    const suffixed_paths = ['/valid_from', '/list/0/until_to', '/pair_eq'];
    expect(await devices.findOne({ name: 'v' })).toMatchObject({ suffixed_paths });
    await devices.updateMany({}, { $unset: { suffixed_paths: 1 } });
    expect(await namesAt('properties.valid_from=2020')).toBe('w');
    await db.collection('migrations').deleteOne({ _id: 'suffixed-paths' as never });
    await migrate(db, upgradeContext);
    await isRefused(refused[0]);
    for (const path of ['/devices/?', '/events/live/?'])
      expect(summarize(await api.get(`${path}filter=Before@fleet`))).toBe('4004 filter');
    expect((await api.patch('/devices/?name=v&confirm=1', { properties: { pair_eq: 'y' } })).body.code).toBe(2005);
    expect(await namesAt('properties.valid_from=2020')).toBe('w');
    await api.put('/devices/v@fleet/', { properties: null });
    await api.put('/models/N@fleet/', { properties: { volts: 24 } });
    for (const query of ['properties.pair_eq=y', 'properties.rated_to=9']) expect(await namesAt(query)).toBe('');
    expect(await devices.countDocuments({ suffixed_paths: { $exists: true } })).toBe(0);
  });
});
