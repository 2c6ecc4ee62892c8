import { beforeAll, describe, expect, it } from '@jest/globals';
import { removeOldAlarms } from '../../../src/alarms/alarms.js';
import { migrate } from '../../../src/service/migrations.js';
import { createAlarmTools, type ListedAlarm } from '../../support/alarms.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { pathOf, upgradeContext } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';

const ctx = await useTestService({ eventLog: true });
const tools = createAlarmTools(ctx);
const conditions = [{ path: 'bar', op: '>', value: 8, clear: 6 }];
const reader = await ctx.service.client({ username: 'rita', scope: 'read' });

/** A device whose alarm is open. */
async function alarmed(
  fields: Record<string, unknown> = {},
): Promise<{ device: string; rule: string; path: string; id: string }> {
  const device = await ctx.fixtures.device(fields);
  const rule = await tools.rule({ conditions, id_device: device });
  await tools.send(device, { data: { bar: 9 } });
  const [alarm] = await tools.alarmsOf(device);
  return { device, rule, path: pathOf('alarms', alarm?.id ?? ''), id: alarm?.id ?? '' };
}

describe('a person', () => {
  it('acknowledges an alarm, once, with a note', async () => {
    const { device, path } = await alarmed();
    ctx.service.advance(1);
    const changed = await ctx.api.put(path, { state: 'acknowledged', note: 'I look' }, { 'X-Request-Id': 'r-1' });
    const expected = {
      state: 'acknowledged',
      acknowledged_at: ctx.service.now(),
      acknowledged_by: 'alice',
      note: 'I look',
    };
    expect([summarize(changed), changed.body.details]).toEqual(['2005', expect.objectContaining(expected)]);
    const shown = await reader.get(path);
    expect(shown.body).toEqual(changed.body.details);
    // it has no version
    expect([changed.headers.etag, shown.headers.etag]).toEqual([undefined, undefined]);
    ctx.service.advance(1);
    // what was shown can be sent back
    for (const body of [{ state: 'acknowledged' }, changed.body.details, {}])
      expect((await ctx.api.put(path, body)).body.details).toEqual(changed.body.details);
    const noted = await ctx.api.put(path, { note: '' });
    expect(noted.body.details).toMatchObject({ ...expected, note: '' });
    expect((await ctx.api.put(path, { note: null })).body.details).not.toHaveProperty('note');
    await tools.send(device, { data: { bar: 1 } });
    expect(await tools.alarmsOf(device)).toMatchObject([{ state: 'closed', acknowledged_by: 'alice' }]);
    const events = await waitForEvents(ctx.api, `resource=alarm&id_developer=${encodeURIComponent(device)}`, 3);
    expect(events.map(({ type, user }) => [type, user])).toEqual([
      ['alarm.raised', undefined],
      ['alarm.acknowledged', 'alice'],
      ['alarm.closed', undefined],
    ]);
    expect(events[1]?.data).toMatchObject(expected);
  });

  it('closes an alarm, which is raised again while it holds, by the next stream with the path', async () => {
    const { device, path } = await alarmed();
    const closed = await ctx.api.put(path, { state: 'closed' });
    expect(closed.body.details).toMatchObject({ state: 'closed', closed_at: ctx.service.now(), closed_by: 'alice' });
    expect(summarize(await ctx.api.put(path, { state: 'closed' }))).toBe('2005');
    expect(summarize(await ctx.api.put(path, { state: 'acknowledged' }))).toBe('4003 state');
    expect(summarize(await ctx.api.put(path, { state: 'active' }))).toBe('4003 state');
    await tools.send(device, { data: { other: 9 } });
    await tools.send(device, { at: ctx.service.now() - 1, data: { bar: 9 } });
    expect(await tools.statesOf(device)).toEqual(['closed']);
    // between `clear` and `value`
    await tools.send(device, { data: { bar: 7 } });
    expect(await tools.alarmsOf(device)).toMatchObject([{ state: 'closed' }, { state: 'active', values: { bar: 7 } }]);
    const [, second] = await tools.alarmsOf(device);
    await ctx.api.put(pathOf('alarms', second?.id ?? ''), { state: 'closed' });
    await tools.send(device, { data: { bar: 6 } });
    await tools.send(device, { data: { bar: 7 } });
    expect(await tools.statesOf(device)).toEqual(['closed', 'closed']);
    expect(await tools.kindsOf(device, 4)).toEqual(['raised', 'closed', 'raised', 'closed']);
  });

  it.each([
    [{ state: 'open' }, '4003 state'],
    [{ state: 'active' }, '2005'],
    [{ note: 'x'.repeat(201) }, '4003 note'],
    [{ note: 'x'.repeat(200) }, '2005'],
    [{ note: 5, state: 1 }, '4003 note state'],
    [{ severity: 'info', closed_by: 'mallory', id: 'x' }, '2005'],
    [{ met: [], revision: 7, account: 'globex' }, '4003 account met revision'],
  ])('sends %j: %s', async (body, expected) => {
    const { path } = await alarmed();
    expect(summarize(await ctx.api.put(path, body))).toBe(expected);
    expect((await ctx.api.get(path)).body).toMatchObject({ severity: 'warning', state: 'active' });
  });

  it('changes many alarms, if exactly as many match', async () => {
    const id_group = await ctx.fixtures.group();
    for (let count = 0; count < 3; count++) await alarmed({ id_group });
    const where = `/alarms/?id_group=${encodeURIComponent(id_group)}`;
    const body = { state: 'acknowledged', note: 'all' };
    expect(summarize(await ctx.api.patch('/alarms/', body))).toBe('4004 filter');
    const counted = await ctx.api.patch(where, body);
    expect([counted.body.code, counted.body.details]).toEqual([2006, { matched: 3 }]);
    const refused = await ctx.api.patch(`${where}&confirm=2`, body);
    expect([refused.body.code, refused.body.details]).toEqual([4005, { matched: 3 }]);
    expect((await ctx.api.get(`${where}&state=active`)).body.total_documents).toBe(3);
    const changed = await ctx.api.patch(`${where}&confirm=3`, body);
    expect([changed.body.code, changed.body.details]).toEqual([2005, { matched: 3, changed: 3 }]);
    const { result } = (await ctx.api.get(where)).body;
    expect(result).toMatchObject([1, 2, 3].map(() => ({ ...body, acknowledged_by: 'alice' })));
    await ctx.api.put(pathOf('alarms', result[0].id), { state: 'closed' });
    for (const confirm of ['', '&confirm=2', '&confirm=3'])
      expect(summarize(await ctx.api.patch(`${where}${confirm}`, { state: 'acknowledged' }))).toBe('4003 state');
    const group = `resource=alarm&id_group=${encodeURIComponent(id_group)}`;
    const events = await waitForEvents(ctx.api, group, 7);
    expect(events.map(({ type }) => type).slice(3)).toEqual([...Array(3).fill('alarm.acknowledged'), 'alarm.closed']);
  });
});

describe('a person changes many alarms', () => {
  /** Copies an open alarm. @returns the list of the copies */
  async function copyAlarms(count: number): Promise<string> {
    const { db } = ctx.service;
    const { device } = await alarmed({});
    const copied = await db.collection('alarms').findOne({ device });
    const copies = Array.from({ length: count - 1 }, (_, n) => {
      const _id = db.newId();
      return { ...copied, _id, watch_key: String(_id), id: `${String(copied?.id).slice(0, -5)}${10_000 + n}` };
    });
    if (copies.length > 0) await db.collection('alarms').insertMany(copies as never);
    return `/alarms/?device=${encodeURIComponent(device)}`;
  }

  it('all or none of up to 1,000, while one is closed', async () => {
    for (let round = 0; round < 8; round++) {
      const where = await copyAlarms(60);
      const [one] = (await ctx.api.get(`${where}&max=1`)).body.result;
      const [reply, closing] = await Promise.all([
        ctx.api.patch(`${where}&confirm=60`, { state: 'acknowledged' }),
        ctx.api.put(pathOf('alarms', one.id), { state: 'closed' }),
      ]);
      expect(summarize(closing)).toBe('2005');
      expect(['2005', '4003 state']).toContain(summarize(reply));
      const alarms: ListedAlarm[] = (await ctx.api.get(`${where}&max=100`)).body.result;
      const acknowledged = alarms.filter(({ acknowledged_at }) => acknowledged_at !== undefined);
      expect(acknowledged).toHaveLength(reply.body.code === 2005 ? 60 : 0);
    }
  });

  it('in pieces if they are more', async () => {
    const where = await copyAlarms(2100);
    const changed = await ctx.api.patch(`${where}&confirm=2100`, { state: 'closed' });
    expect(changed.body.details).toEqual({ matched: 2100, changed: 2100 });
    expect((await ctx.api.get(`${where}&state=closed`)).body.total_documents).toBe(2100);
  });
});

describe('lists', () => {
  let id_service: string;
  let found: ListedAlarm[];
  beforeAll(async () => {
    id_service = await ctx.fixtures.service();
    const id_group = await ctx.fixtures.group({ id_service });
    const ids: string[] = [];
    for (const severity of ['info', 'warning', 'critical', 'critical']) {
      const device = await ctx.fixtures.device({ id_group });
      await tools.rule({ conditions, id_device: device, severity });
      await tools.send(device, { data: { bar: 9 } });
      ids.push((await tools.alarmsOf(device))[0]?.id ?? '');
      ctx.service.advance(10);
    }
    await ctx.api.put(pathOf('alarms', ids[0] ?? ''), { state: 'closed' });
    await ctx.api.put(pathOf('alarms', ids[1] ?? ''), { state: 'acknowledged' });
    found = await Promise.all(ids.map(async (id) => (await ctx.api.get(pathOf('alarms', id))).body));
  });
  const where = (query: string) => `/alarms/?id_service=${encodeURIComponent(id_service)}&${query}`;
  const idsOf = (alarms: readonly ListedAlarm[]) => alarms.map(({ id }) => found.findIndex((alarm) => alarm.id === id));

  it.each([
    ['', [3, 2, 1, 0]],
    ['order=1', [0, 1, 2, 3]],
    ['state=active', [3, 2]],
    ['state=acknowledged,closed', [1, 0]],
    ['severity=critical&max=1', [3]],
    ['sort=severity', [0, 1, 2, 3]],
    ['sort=severity&order=-1', [3, 2, 1, 0]],
    ['sort=state', [1, 2, 3, 0]],
    ['sort=raised_at', [0, 1, 2, 3]],
  ])('with %s have the alarms %j', async (query, expected) => {
    expect(idsOf((await reader.get(where(query))).body.result)).toEqual(expected);
  });

  it('have the rules in order of severity too', async () => {
    const sorted = await reader.get('/alarmrules/?sort=severity&fields=severity');
    const severities = sorted.body.result.map(({ severity }: { severity: string }) => severity);
    const order = ['info', 'warning', 'critical'];
    expect(severities).toEqual(severities.toSorted((a: string, b: string) => order.indexOf(a) - order.indexOf(b)));
    const [{ id_developer }] = (await reader.get('/alarmrules/?severity=critical')).body.result;
    await ctx.api.put(pathOf('alarmrules', id_developer), { severity: 'info' });
    const changed = (await reader.get('/alarmrules/?sort=severity&order=-1&fields=id_developer,severity')).body.result;
    expect(changed).toContainEqual({ id_developer, severity: 'info' });
    expect(changed.at(-1).severity).toBe('info');
    await ctx.api.put(pathOf('alarmrules', id_developer), { severity: 'critical' });
  });

  it('are sorted by severity after the upgrade of a database without its number', async () => {
    const { db } = ctx.service;
    for (const plural of ['alarms', 'alarmrules'])
      await db.collection(plural).updateMany({}, { $unset: { gravity: 1 } });
    await db.collection('migrations').deleteOne({ _id: 'gravity' } as object);
    await migrate(db, upgradeContext);
    expect(idsOf((await reader.get(where('sort=severity'))).body.result)).toEqual([0, 1, 2, 3]);
  });

  it('filter by rule, device, time and what is above', async () => {
    const [first] = found;
    const at = Number(first?.raised_at);
    for (const [query, expected] of [
      [`rule=${encodeURIComponent(String(first?.rule))}`, [0]],
      [`device=${encodeURIComponent(String(first?.device))}`, [0]],
      [`raised_at=${at}`, [0]],
      [`raised_at_from=${at + 1}&raised_at_to=${at + 20}`, [2, 1]],
      [`id_project=${encodeURIComponent(String(first?.id_project))}`, [3, 2, 1, 0]],
      ['id_asset=none%40acme', []],
    ] as const)
      expect(idsOf((await reader.get(where(query))).body.result)).toEqual(expected);
    for (const bad of ['state=open', 'state=active,active', 'severity=bad', 'id=x', 'sort=met', 'met=1'])
      expect([bad, (await reader.get(where(bad))).body.code]).toEqual([bad, 4004]);
    expect(summarize(await reader.get(pathOf('devices', 'none@acme', 'alarms')))).toBe('4041');
  });

  it('count by one or two values', async () => {
    const counts = async (by: string) =>
      (await reader.get(`/alarms/counts/?by=${by}&id_service=${encodeURIComponent(id_service)}`)).body;
    expect(await counts('severity')).toEqual({
      total_documents: 4,
      result: [
        { severity: 'critical', count: 2 },
        { severity: 'info', count: 1 },
        { severity: 'warning', count: 1 },
      ],
    });
    expect((await counts('state,id_group')).result).toEqual(
      [
        ['active', 2],
        ['acknowledged', 1],
        ['closed', 1],
      ].map(([state, count]) => ({ state, id_group: found[0]?.id_group, count })),
    );
  });

  it('are exported, continued and shown as XML', async () => {
    const csv = (await reader.get(where('format=csv&fields=severity,values&order=1'))).text;
    expect(csv.split('\r\n').slice(0, 2)).toEqual(['severity,values', 'info,"{""bar"":9}"']);
    const xml = (await reader.get(where('max=1'), { Accept: 'application/xml' })).text;
    expect(xml).toContain('<result><alarm>');
    expect(xml).not.toMatch(/tenant|watch_key|revision|rule_id|is_current|ancestors/);
    const first = (await reader.get(where('after=0&max=3'))).body;
    const rest = (await reader.get(where(`after=${first.next}`))).body;
    expect(idsOf([...first.result, ...rest.result])).toEqual([0, 1, 2, 3]);
  });
});

describe('the filter `alarm` of devices', () => {
  it.each([
    ['open', ['active', 'both', 'seen']],
    ['active', ['active', 'both']],
    ['acknowledged', ['both', 'seen']],
    ['info', ['both']],
    ['warning', ['active']],
    ['critical', ['both', 'seen']],
    ['closed', '4004 alarm'],
    ['', '4004 alarm'],
  ])('with %j has %j', async (alarm, expected) => {
    const { id_group } = await fleet();
    const reply = await reader.get(`/devices/?alarm=${alarm}&id_group=${encodeURIComponent(id_group)}`);
    if (typeof expected === 'string') expect(summarize(reply)).toBe(expected);
    else expect([reply.body.total_documents, namesOf(reply.body.result)]).toEqual([expected.length, expected]);
  });

  it('goes with other filters, counts, continuations, changes of many and limited keys', async () => {
    const { id_group, ids } = await fleet();
    const where = `?alarm=open&id_group=${encodeURIComponent(id_group)}`;
    const groups = await reader.get(`${pathOf('groups', id_group, 'devices')}?alarm=open&sort=name&order=-1&max=2`);
    expect([groups.body.total_documents, namesOf(groups.body.result)]).toEqual([3, ['seen', 'both']]);
    expect((await reader.get(`/devices/counts/${where}&by=type`)).body).toMatchObject({ total_documents: 3 });
    const first = (await reader.get(`/devices/${where}&after=0&max=2`)).body;
    const rest = (await reader.get(`/devices/${where}&after=${encodeURIComponent(first.next)}`)).body;
    expect(namesOf([...first.result, ...rest.result])).toEqual(['active', 'both', 'seen']);
    expect((await ctx.api.patch(`/devices/${where}&name=seen`, { sensor: 's' })).body.details).toEqual({ matched: 1 });
    const near = await reader.get(`/devices/${where}&status=ok&sort=status`);
    expect(namesOf(near.body.result)).toEqual(['active', 'seen', 'both']);
    for (const [name, expected] of [
      ['seen', ['seen']],
      ['none', []],
    ] as const) {
      const issued = await ctx.api.post('/apikeys/', { username: 'lina', scope: 'read', id_device: ids.get(name) });
      const limited = ctx.service.clientWith(issued.body.details.key);
      expect(namesOf((await limited.get('/devices/?alarm=open')).body.result)).toEqual(expected);
    }
  });

  it('is part of saved filters, for lists and events', async () => {
    const { id_group, ids } = await fleet();
    await ctx.api.post('/filters/', {
      name: 'Alarmed',
      query: `alarm=critical&id_group=${encodeURIComponent(id_group)}`,
    });
    const listed = await reader.get('/devices/?filter=Alarmed@acme');
    expect([listed.body.total_documents, namesOf(listed.body.result)]).toEqual([2, ['both', 'seen']]);
    const both = await reader.get('/devices/?filter=Alarmed@acme&alarm=active');
    expect([both.body.total_documents, namesOf(both.body.result)]).toEqual([1, ['both']]);
    const { headers } = await createKey(ctx.service, { scope: 'read' });
    const follower = await follow(`${ctx.service.url}/events/live/?type=device.updated&filter=Alarmed@acme`, headers);
    for (const name of ['active', 'seen', 'none', 'both'])
      await ctx.api.put(pathOf('devices', ids.get(name) ?? ''), { description: 'changed' });
    await waitUntil(() => follower.messages.length >= 2);
    expect(follower.messages.map(({ data }) => data.id_developer)).toEqual([ids.get('seen'), ids.get('both')]);
    await follower.close();
  });

  it('comes with the numbers of open alarms, where `fields` names them', async () => {
    const { id_group, ids } = await fleet();
    const where = `id_group=${encodeURIComponent(id_group)}`;
    const listed = await reader.get(`/devices/?${where}&fields=name,alarms`);
    expect(listed.body.result).toEqual([
      { name: 'active', alarms: { info: 0, warning: 1, critical: 0 } },
      { name: 'both', alarms: { info: 1, warning: 0, critical: 1 } },
      { name: 'closed', alarms: { info: 0, warning: 0, critical: 0 } },
      { name: 'none', alarms: { info: 0, warning: 0, critical: 0 } },
      { name: 'seen', alarms: { info: 0, warning: 0, critical: 1 } },
    ]);
    const both = pathOf('devices', ids.get('both') ?? '');
    expect((await reader.get(`${both}?fields=alarms.critical,name`)).body).toEqual({
      name: 'both',
      alarms: { critical: 1 },
    });
    expect((await reader.get(both)).body.alarms).toBe(undefined);
    expect(summarize(await reader.get(`${both}?fields=alarms.other`))).toBe('4004 fields');
    const csv = (await reader.get(`/devices/?${where}&alarm=open&format=csv&fields=name,alarms`)).text;
    expect(csv).toBe('name,alarms.info,alarms.warning,alarms.critical\r\nactive,0,1,0\r\nboth,1,0,1\r\nseen,0,0,1\r\n');
    const ndjson = (await reader.get(`/devices/?${where}&name=seen&format=ndjson&fields=alarms`)).text;
    expect(ndjson).toBe('{"alarms":{"info":0,"warning":0,"critical":1}}\n');
    const xml = (await reader.get(`${both}?fields=alarms`, { accept: 'application/xml' })).text;
    expect(xml).toContain('<alarms><info>1</info><warning>0</warning><critical>1</critical></alarms>');
  });

  it('has its numbers by one command for a page', async () => {
    const { id_group } = await fleet();
    const { db } = ctx.service.db.collection('alarms');
    await db.command({ profile: 2 });
    await reader.get(`/devices/?id_group=${encodeURIComponent(id_group)}&fields=alarms`);
    await db.command({ profile: 0 });
    expect(await db.collection('system.profile').countDocuments({ 'command.aggregate': 'alarms' })).toBe(1);
  });

  let built: Promise<{ id_group: string; ids: Map<string, string> }> | undefined;
  const namesOf = (devices: readonly { name: string }[]) => devices.map(({ name }) => name);

  /** Devices named after their alarms: one active, one acknowledged, both of them, one closed, and none. */
  function fleet() {
    built ??= buildFleet();
    return built;
  }
  async function buildFleet() {
    const id_group = await ctx.fixtures.group();
    const ids = new Map<string, string>();
    for (const [name, severities] of [
      ['active', ['warning']],
      ['seen', ['critical']],
      ['both', ['info', 'critical']],
      ['closed', ['info']],
      ['none', []],
    ] as const) {
      const device = await ctx.fixtures.device({ name, id_group });
      ids.set(name, device);
      for (const severity of severities) await tools.rule({ conditions, id_device: device, severity });
      await tools.send(device, { data: { bar: 9 } });
      await ctx.api.post('/status/', { device, data: {} });
      for (const { id, severity } of await tools.alarmsOf(device)) {
        if (name === 'closed') await ctx.api.put(pathOf('alarms', id), { state: 'closed' });
        if (severity === 'critical') await ctx.api.put(pathOf('alarms', id), { state: 'acknowledged' });
      }
    }
    return { id_group, ids };
  }
});

it('a limited key sees and changes the alarms of its part', async () => {
  const id_group = await ctx.fixtures.group();
  const [own, other] = [await alarmed({ id_group }), await alarmed()];
  for (const limit of [{ id_group }, { id_device: own.device }]) {
    const scope = 'id_device' in limit ? 'read' : 'write';
    const issued = await ctx.api.post('/apikeys/', { username: 'lina', scope, ...limit });
    const limited = ctx.service.clientWith(issued.body.details.key);
    expect((await limited.get('/alarms/')).body).toMatchObject({ total_documents: 1, result: [{ id: own.id }] });
    expect((await limited.get('/alarms/counts/?by=device')).body.result).toEqual([{ device: own.device, count: 1 }]);
    expect(summarize(await limited.get(other.path))).toBe('4041');
    expect((await limited.get(own.path)).status).toBe(200);
    const raised = await waitForEvents(limited, 'type=alarm.raised', 1);
    expect(raised.map(({ id_developer }) => id_developer)).toEqual([own.device]);
    if (scope === 'read') continue;
    expect(summarize(await limited.put(other.path, { state: 'closed' }))).toBe('4041');
    expect((await limited.patch('/alarms/?state=active', { state: 'closed' })).body.details).toEqual({ matched: 1 });
    expect(summarize(await limited.put(own.path, { state: 'acknowledged' }))).toBe('2005');
    expect(summarize(await limited.post('/alarmrules/', { name: 'x', severity: 'info', conditions }))).toBe('4031');
    expect(summarize(await limited.delete(pathOf('alarmrules', own.rule)))).toBe('4031');
    expect((await limited.get(pathOf('alarmrules', own.rule))).status).toBe(200);
  }
});

it('a limited key sees the rules that can cover its devices, and none that names something beside it', async () => {
  const id_service = await ctx.fixtures.service();
  const id_group = await ctx.fixtures.group({ id_service });
  const device = await ctx.fixtures.device({ id_group });
  const silent = [{ path: 'never', op: '>', value: 8 }];
  const shown = [{ id_service }, { id_group }, { id_device: device }, {}];
  const beside = [{ id_group: await ctx.fixtures.group({ id_service }) }, { id_device: await ctx.fixtures.device() }];
  const create = (place: object) => tools.rule({ conditions: silent, description: 'of limits', ...place });
  const visible = await Promise.all(shown.map(create));
  const hidden = await Promise.all(beside.map(create));
  const counted = (await ctx.api.get('/alarmrules/?q=of%20limits')).body.total_documents;
  expect(counted).toBe(6);
  for (const limit of [{ id_group }, { id_device: device }]) {
    const issued = await ctx.api.post('/apikeys/', { username: 'lina', scope: 'read', ...limit });
    const limited = ctx.service.clientWith(issued.body.details.key);
    const { total_documents, result } = (await limited.get('/alarmrules/?q=of%20limits')).body;
    const ids = result.map(({ id_developer }: { id_developer: string }) => id_developer);
    expect([total_documents, ids.toSorted()]).toEqual([4, visible.toSorted()]);
    for (const rule of visible) expect((await limited.get(pathOf('alarmrules', rule))).status).toBe(200);
    for (const rule of hidden) expect(summarize(await limited.get(pathOf('alarmrules', rule)))).toBe('4041');
  }
});

it('closed alarms are removed after 90 days', async () => {
  const { device, path } = await alarmed();
  await ctx.api.put(path, { state: 'closed' });
  const document = await ctx.service.db.collection('alarms').findOne({ device });
  expect(document?.closed_at).toBe(ctx.service.now());
  for (const status of [200, 404]) {
    ctx.service.advance(45 * 86_400 + 1);
    await removeOldAlarms(ctx.service.db, ctx.service.now());
    expect((await ctx.api.get(path)).status).toBe(status);
  }
});
