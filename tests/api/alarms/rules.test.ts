import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });
let number = 0;
const high = { path: 'bar', op: '>', value: 8 };
const body = (fields: object = {}) => ({
  name: `rule ${++number}`,
  severity: 'warning',
  conditions: [high],
  ...fields,
});

async function create(fields: object = {}): Promise<string> {
  const created = await ctx.api.post('/alarmrules/', body(fields));
  expect(summarize(created)).toBe('2001');
  return created.headers.location ?? '';
}

describe('the fields of a rule', () => {
  it('are shown with their defaults', async () => {
    const created = await ctx.api.post('/alarmrules/', body({ name: 'Overpressure' }));
    expect([created.status, created.headers.location]).toEqual([200, '/alarmrules/Overpressure%40acme/']);
    expect(created.body).toEqual({ code: 2001, message: 'Alarm rule created', details: {} });
    const now = ctx.service.now();
    const shown = await ctx.api.get('/alarmrules/Overpressure%40acme/');
    expect(shown.headers.etag).toBe('"0"');
    expect(shown.body).toEqual({
      id_developer: 'Overpressure@acme',
      name: 'Overpressure',
      severity: 'warning',
      conditions: [{ path: 'bar', op: '>', value: 8 }],
      match: 'all',
      for: 0,
      enabled: true,
      owner: 'alice',
      updater: 'alice',
      created_at: now,
      updated_at: now,
      version: 0,
    });
    const xml = await ctx.api.get('/alarmrules/?name=Overpressure', { Accept: 'application/xml' });
    expect(xml.text).toContain('<conditions><item><path>bar</path><op>&gt;</op><value>8</value></item></conditions>');
    expect(xml.text).not.toMatch(/slot|search_text/);
  });

  it.each([
    [[{ ...high, clear: 7.5 }]],
    [[{ path: '/a~1b/0', op: '<=', value: -1e9, clear: 0 }]],
    [[{ path: 'valve.state', op: '=', value: '' }]],
    [[{ path: 'on', op: '!=', value: false }]],
    [[{ status: ['no_data', 'disconnected', 'no_status'] }]],
    [[{ absent: 'bar', minutes: 1 }]],
    [[{ absent: 'bar', minutes: 525_600 }, high, high, high, { status: ['no_data'] }]],
  ])('take %j', async (conditions) => {
    const path = await create({ conditions, for: 86_400, match: 'any' });
    expect((await ctx.api.get(path)).body).toMatchObject({ conditions, for: 86_400, match: 'any' });
  });

  it('take null for members of the other kinds, and store none', async () => {
    const none = { path: null, op: null, value: null, clear: null, status: null, absent: null, minutes: null };
    const conditions = [high, { status: ['no_data'] }, { absent: 'bar', minutes: 1 }];
    const path = await create({ conditions: conditions.map((condition) => ({ ...none, ...condition })) });
    expect((await ctx.api.get(path)).body.conditions).toEqual(conditions);
  });

  it('exclude members of another kind, and name the kind', async () => {
    const conditions = [
      { ...high, minutes: 5 },
      { status: ['no_data'], absent: 'bar', path: 'bar' },
      { absent: 'bar', minutes: 1, value: 8, limit: null },
    ];
    expect((await ctx.api.post('/alarmrules/', body({ conditions }))).body.details).toEqual({
      'conditions.0.minutes': 'must not be given with path',
      'conditions.1.absent': 'must not be given with status',
      'conditions.1.path': 'must not be given with status',
      'conditions.2.value': 'must not be given with absent',
      'conditions.2.limit': 'unknown field',
    });
  });

  it.each([
    [{ severity: 'fatal' }, '4003 severity'],
    [{ severity: undefined, conditions: undefined }, '4003 conditions severity'],
    [{ conditions: [] }, '4003 conditions'],
    [{ conditions: high }, '4003 conditions'],
    [{ conditions: Array.from({ length: 6 }, () => high) }, '4003 conditions'],
    [{ conditions: [high, 7, null] }, '4003 conditions.1 conditions.2'],
    [{ conditions: [{}] }, '4003 conditions.0.op conditions.0.path conditions.0.value'],
    [{ conditions: [{ ...high, value: '8' }] }, '4003 conditions.0.value'],
    [{ conditions: [high, { ...high, value: true }] }, '4003 conditions.1.value'],
    [{ conditions: [{ ...high, value: null }] }, '4003 conditions.0.value'],
    [{ conditions: [{ ...high, op: '=', value: [1] }] }, '4003 conditions.0.value'],
    [{ conditions: [{ ...high, op: '=', value: 'a\0' }] }, '4003 conditions.0.value'],
    [{ conditions: [{ ...high, op: '=', value: 'x'.repeat(1001) }] }, '4003 conditions.0.value'],
    [{ conditions: [{ ...high, op: '==' }] }, '4003 conditions.0.op'],
    [{ conditions: [{ ...high, path: '' }] }, '4003 conditions.0.path'],
    [{ conditions: [{ ...high, path: 'a,b' }] }, '4003 conditions.0.path'],
    [{ conditions: [{ ...high, path: '/a~2' }] }, '4003 conditions.0.path'],
    [{ conditions: [{ ...high, clear: 8 }] }, '4003 conditions.0.clear'],
    [{ conditions: [{ ...high, clear: 9 }] }, '4003 conditions.0.clear'],
    [{ conditions: [{ ...high, op: '<', clear: 8 }] }, '4003 conditions.0.clear'],
    [{ conditions: [{ ...high, op: '<=', clear: 7 }] }, '4003 conditions.0.clear'],
    [{ conditions: [{ ...high, op: '=', clear: 7 }] }, '4003 conditions.0.clear'],
    [{ conditions: [{ ...high, clear: '7' }] }, '4003 conditions.0.clear'],
    [{ conditions: [{ ...high, minutes: 5 }] }, '4003 conditions.0.minutes'],
    [{ conditions: [{ status: [] }] }, '4003 conditions.0.status'],
    [{ conditions: [{ status: ['ok'] }] }, '4003 conditions.0.status'],
    [{ conditions: [{ status: ['no_data', 'no_data'] }] }, '4003 conditions.0.status'],
    [{ conditions: [{ status: 'no_data' }] }, '4003 conditions.0.status'],
    [{ conditions: [{ status: ['no_data'], ...high }] }, '4003 conditions.0.op conditions.0.path conditions.0.value'],
    [{ conditions: [{ absent: 'bar' }] }, '4003 conditions.0.minutes'],
    [{ conditions: [{ absent: 'bar', minutes: 0 }] }, '4003 conditions.0.minutes'],
    [{ conditions: [{ absent: 'bar', minutes: 525_601 }] }, '4003 conditions.0.minutes'],
    [{ conditions: [{ absent: '', minutes: 1 }] }, '4003 conditions.0.absent'],
    [{ match: 'some', for: 86_401 }, '4003 for match'],
    [{ for: -1 }, '4003 for'],
    [{ for: 1.5 }, '4003 for'],
    [{ slot: 1, ancestors: [] }, '4003 ancestors slot'],
  ])('do not take %j', async (fields, expected) => {
    expect(summarize(await ctx.api.post('/alarmrules/', body(fields)))).toBe(expected);
  });

  it('are changed by an update, which may be refused', async () => {
    const path = await create({ description: 'first' });
    const changed = await ctx.api.put(path, {
      version: 0,
      severity: 'critical',
      conditions: [{ status: ['no_data'] }],
    });
    expect(summarize(changed)).toBe('2005');
    expect(changed.body.details).toMatchObject({
      severity: 'critical',
      conditions: [{ status: ['no_data'] }],
      version: 1,
    });
    expect(summarize(await ctx.api.put(path, { version: 0 }))).toBe('4005 version');
    expect(summarize(await ctx.api.put(path, { conditions: [{ ...high, clear: 8 }] }))).toBe('4003 conditions.0.clear');
    expect(summarize(await ctx.api.put(path, { conditions: null }))).toBe('4003 conditions');
  });
});

describe('the devices that a rule covers', () => {
  it('are those of one object at most, which exists', async () => {
    const id_group = await ctx.fixtures.group();
    const id_model = await ctx.fixtures.model();
    expect(summarize(await ctx.api.post('/alarmrules/', body({ id_group, id_model })))).toBe('4003 id_group id_model');
    expect(summarize(await ctx.api.post('/alarmrules/', body({ id_asset: 'none@acme' })))).toBe('4003 id_asset');
    expect(summarize(await ctx.api.post('/alarmrules/', body({ id_device: 'none' })))).toBe('4003 id_device');
    const path = await create({ id_group });
    expect(summarize(await ctx.api.put(path, { id_model }))).toBe('4003 id_model');
    expect(summarize(await ctx.api.put(path, { id_model, id_group: null }))).toBe('2005');
    const { id_group: former, id_model: present } = (await ctx.api.get(path)).body;
    expect([former, present]).toEqual([undefined, id_model]);
    expect((await ctx.api.get(`/alarmrules/?id_model=${encodeURIComponent(id_model)}`)).body.total_documents).toBe(1);
  });

  it('take the rule along when their object is deleted, at any level', async () => {
    const id_project = await ctx.fixtures.project();
    const id_service = await ctx.fixtures.service({ id_project });
    const id_group = await ctx.fixtures.group({ id_service });
    const id_asset = await ctx.fixtures.asset({ id_group });
    const id_device = await ctx.fixtures.device({ id_asset });
    const above = { id_project, id_service, id_group, id_asset, id_device };
    const paths = await Promise.all(Object.entries(above).map(([field, id]) => create({ [field]: id })));
    const moved = await create({ id_group });
    await ctx.api.put(moved, { id_group: null, id_device: await ctx.fixtures.device() });
    const dry = await ctx.api.delete(`${pathOf('projects', id_project)}?dry_run=1`);
    expect(dry.body.details).toEqual({ project: 1, service: 1, group: 1, asset: 1, device: 1, alarmrule: 5 });
    expect(summarize(await ctx.api.delete(pathOf('projects', id_project)))).toBe('2004');
    for (const path of paths) expect((await ctx.api.get(path)).body.code).toBe(4041);
    expect((await ctx.api.get(moved)).status).toBe(200);
    const deleted = await waitForEvents(ctx.api, 'type=alarmrule.deleted', 5);
    expect(deleted.map(({ id_developer }) => id_developer).sort()).toEqual(
      paths.map((path) => decodeURIComponent(path.split('/')[2] ?? '')).sort(),
    );
    expect(deleted[0]).toMatchObject({ resource: 'alarmrule', user: 'alice' });
  });

  it('keep a saved filter from being deleted, which has to exist and excludes others', async () => {
    await ctx.api.post('/filters/', { name: 'Kept', query: 'type=pump' });
    const path = await create({ name: 'Guard', filter: 'Kept@acme' });
    expect((await ctx.api.get(path)).body.filter).toBe('Kept@acme');
    const refused = await ctx.api.delete('/filters/Kept%40acme/');
    expect([refused.body.code, refused.body.details]).toEqual([4003, { alarmrules: 'Guard@acme names it' }]);
    const id_model = await ctx.fixtures.model();
    expect(summarize(await ctx.api.post('/alarmrules/', body({ filter: 'Kept@acme', id_model })))).toBe(
      '4003 filter id_model',
    );
    expect(summarize(await ctx.api.put(path, { id_model }))).toBe('4003 id_model');
    expect(summarize(await ctx.api.post('/alarmrules/', body({ filter: 'none@acme' })))).toBe('4003 filter');
    expect((await ctx.api.get('/alarmrules/?filter=Kept%40acme')).body.total_documents).toBe(1);
    expect(summarize(await ctx.api.put(path, { filter: null }))).toBe('2005');
    expect(summarize(await ctx.api.delete('/filters/Kept%40acme/'))).toBe('2004');
  });

  it('keep a model from being deleted, alone, among many and in previews', async () => {
    const id_model = await ctx.fixtures.model({ description: 'kept' });
    const path = await create({ name: 'Keeper', id_model });
    const expected = { alarmrules: 'Keeper@acme names it' };
    const model = pathOf('models', id_model);
    for (const refused of [
      await ctx.api.delete(model),
      await ctx.api.delete(`${model}?dry_run=1`),
      await ctx.api.delete('/models/?q=kept'),
      await ctx.api.delete('/models/?q=kept&confirm=1'),
    ])
      expect([refused.status, refused.body.code, refused.body.details]).toEqual([400, 4003, expected]);
    expect(summarize(await ctx.api.delete(path))).toBe('2004');
    expect(summarize(await ctx.api.delete(model))).toBe('2004');
    expect(summarize(await ctx.api.post('/alarmrules/', body({ id_model })))).toBe('4003 id_model');
  });

  it('is never a deleted model, whoever is first', async () => {
    for (let round = 0; round < 5; round++) {
      const id_model = await ctx.fixtures.model();
      const [deleted, created] = await Promise.all([
        ctx.api.delete(pathOf('models', id_model)),
        ctx.api.post('/alarmrules/', body({ id_model })),
      ]);
      const exists = (await ctx.api.get(pathOf('models', id_model))).status === 200;
      expect([deleted.body.code, created.body.code].filter((code) => code === 4003).length).toBeGreaterThan(0);
      expect(exists).toBe(deleted.body.code === 4003);
      const rules = await ctx.api.get(`/alarmrules/?id_model=${encodeURIComponent(id_model)}`);
      expect(rules.body.total_documents).toBe(created.body.code === 2001 ? 1 : 0);
    }
  });
});

it('an account has at most 200 rules', async () => {
  const api = await ctx.service.client({ account: 'many' });
  for (let sent = 0; sent < 202; sent += 101) {
    const creates = Array.from({ length: 101 }, (_, index) =>
      api.post('/alarmrules/', body({ name: `r${sent + index}` })),
    );
    await Promise.all(creates);
  }
  expect((await api.get('/alarmrules/?max=1')).body.total_documents).toBe(200);
  const refused = await api.post('/alarmrules/', body({ name: 'one more' }));
  expect(refused.body.details).toEqual({ name: 'exceeds the 200 alarm rules of an account' });
});

it('the log has the changes of a rule', async () => {
  const path = await create({ name: 'Logged' });
  await ctx.api.put(path, { severity: 'info' });
  await ctx.api.delete(path);
  const events = await waitForEvents(ctx.api, 'id_developer=Logged%40acme', 3);
  expect(events.map(({ type, data }) => [type, data])).toEqual([
    ['alarmrule.created', undefined],
    ['alarmrule.updated', { version: 1, changed: ['severity'] }],
    ['alarmrule.deleted', undefined],
  ]);
});
