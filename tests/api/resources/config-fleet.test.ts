import { describe, expect, it } from '@jest/globals';
import { migrate } from '../../../src/service/migrations.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { pathOf, upgradeContext } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';

const ctx = await useTestService({ eventLog: true });
const ids = new Map<string, string>();
const idOf = (name: string) => ids.get(name) ?? '';
const statePath = (name: string) => pathOf('devices', idOf(name), 'state');
const desire = async (name: string, file: string, version: string | null) =>
  expect((await ctx.api.put(pathOf('devices', idOf(name), 'deviceconfigs', file, 'desired'), { version })).status).toBe(
    200,
  );
const report = async (name: string, patch: unknown) =>
  expect((await ctx.api.patch(`${statePath(name)}reported/`, patch)).status).toBe(200);
const namesOf = ({ result }: { result: { name: string }[] }) => result.map(({ name }) => name);

const hall = await ctx.fixtures.group();
const yard = await ctx.fixtures.group();
for (const name of ['applied', 'behind', 'failed', 'kept', 'none', 'rejecting'])
  ids.set(name, await ctx.fixtures.device({ name, id_group: hall }));
ids.set('yard', await ctx.fixtures.device({ name: 'yard', id_group: yard }));
for (const name of ids.keys())
  for (const version of ['1', '2'])
    await ctx.api.post(pathOf('devices', idOf(name), 'deviceconfigs'), { name: 'boot.cfg', version, file: 'YQ==' });
for (const name of ['applied', 'behind', 'failed', 'rejecting']) await desire(name, 'boot.cfg', '2');
await desire('yard', 'boot.cfg', '1');
await report('applied', { configs: { 'boot.cfg': { version: '2' } } });
await report('behind', { configs: { 'boot.cfg': { version: '1' } } });
await report('failed', { configs: { 'boot.cfg': { version: '2', error: 'bad checksum' } } });
await report('kept', { configs: { 'boot.cfg': { version: '1' }, odd: 7, 'other.cfg': { version: true } } });
await report('rejecting', { rejected: { '/configs/boot.cfg': 'no room' } });
const reader = await ctx.service.client({ username: 'rita', scope: 'read' });

describe('the filter `config` of devices', () => {
  it.each([
    ['', ['applied', 'behind', 'failed', 'kept', 'rejecting', 'yard']],
    ['&config_status=pending', ['behind', 'yard']],
    ['&config_status=applied', ['applied']],
    ['&config_status=refused', ['failed', 'rejecting']],
    ['&config_status=not_desired', ['kept']],
    ['&config_desired=2', ['applied', 'behind', 'failed', 'rejecting']],
    ['&config_reported=1', ['behind', 'kept']],
    ['&config_desired=2&config_reported=2&config_status=refused', ['failed']],
    ['&config_desired=1&config_status=applied', []],
    ['&config_status=late', '4004 config_status'],
    ['&config_desired=', '4004 config_desired'],
  ])('with %j has %j', async (more, expected) => {
    const reply = await reader.get(`/devices/?config=boot.cfg${more}&sort=name`);
    if (typeof expected === 'string') expect(summarize(reply)).toBe(expected);
    else expect([reply.body.total_documents, namesOf(reply.body)]).toEqual([expected.length, expected]);
  });

  it('needs the name of the file', async () => {
    const reply = await reader.get('/devices/?config_status=applied&config_desired=1');
    expect(summarize(reply)).toBe('4004 config_desired config_status');
    expect((await reader.get('/devices/?config=other.cfg')).body.total_documents).toBe(0);
  });

  it('goes with other filters, counts, changes of many and limited keys', async () => {
    const where = `config=boot.cfg&config_status=pending&id_group=${encodeURIComponent(hall)}`;
    expect(namesOf((await reader.get(`/devices/?${where}`)).body)).toEqual(['behind']);
    expect((await reader.get(`/devices/counts/?${where}&by=status`)).body.total_documents).toBe(1);
    expect((await ctx.api.patch(`/devices/?${where}`, { sensor: 's' })).body.details).toEqual({ matched: 1 });
    const issued = await ctx.api.post('/apikeys/', { username: 'lina', scope: 'read', id_group: yard });
    const limited = ctx.service.clientWith(issued.body.details.key);
    expect(namesOf((await limited.get('/devices/?config=boot.cfg')).body)).toEqual(['yard']);
  });

  it('is part of saved filters, for lists and events', async () => {
    await ctx.api.post('/filters/', { name: 'Behind', query: 'config=boot.cfg&config_status=pending' });
    expect(namesOf((await reader.get('/devices/?filter=Behind@acme&sort=name')).body)).toEqual(['behind', 'yard']);
    const { headers } = await createKey(ctx.service, { scope: 'read' });
    const follower = await follow(`${ctx.service.url}/events/live/?type=device.updated&filter=Behind@acme`, headers);
    for (const name of ['applied', 'behind', 'kept', 'yard'])
      await ctx.api.put(pathOf('devices', idOf(name)), { description: 'changed' });
    await waitUntil(() => follower.messages.length >= 2);
    expect(follower.messages.map(({ data }) => data.id_developer)).toEqual([idOf('behind'), idOf('yard')]);
    await follower.close();
  });
});

const refused = { name: 'boot.cfg', status: 'refused', desired: '2' };
const behind = { name: 'boot.cfg', desired: '2', reported: '1', status: 'pending', count: 1 };
const yardEntry = { name: 'boot.cfg', desired: '1', reported: null, status: 'pending', count: 1 };
const ofHall = [
  { name: 'boot.cfg', desired: '2', reported: '2', status: 'applied', count: 1 },
  { name: 'boot.cfg', desired: null, reported: '1', status: 'not_desired', count: 1 },
  behind,
  { ...refused, reported: null, count: 1 },
  { ...refused, reported: '2', count: 1 },
];

describe('counts of configuration files', () => {
  const count = async (query = '', api = reader) => (await api.get(`/devices/deviceconfigs/counts/${query}`)).body;

  it('have each combination of versions and state, in an account and in a part of it', async () => {
    const all = [...ofHall.slice(0, 2), yardEntry, ...ofHall.slice(2)];
    expect(await count()).toEqual({ total_documents: 6, result: all });
    expect(await count(`?id_group=${encodeURIComponent(hall)}`)).toEqual({ total_documents: 5, result: ofHall });
    expect(await count('?max=2')).toEqual({ total_documents: 6, result: all.slice(0, 2) });
    expect(await count('?config=boot.cfg&config_reported=1&config_status=pending')).toEqual({
      total_documents: 1,
      result: [behind],
    });
    expect(await count('?config=boot.cfg&name=yard')).toEqual({ total_documents: 1, result: [yardEntry] });
    expect(await count('?config=nope')).toEqual({ total_documents: 0, result: [] });
  });

  it('put the greatest first, and follow each change', async () => {
    for (const name of ['kept', 'none']) await desire(name, 'boot.cfg', '1');
    await report('none', { configs: { 'boot.cfg': { version: '1' } } });
    const two = { name: 'boot.cfg', desired: '1', reported: '1', status: 'applied', count: 2 };
    expect((await count()).result[0]).toEqual(two);
    await desire('none', 'boot.cfg', null);
    await report('none', { configs: null });
    await desire('kept', 'boot.cfg', null);
    expect((await count(`?id_group=${encodeURIComponent(hall)}`)).result).toEqual(ofHall);
    expect(await ctx.service.db.collection('device_states').findOne({ device: idOf('none') })).not.toHaveProperty(
      'configs',
    );
  });

  it('show a key its part only, and nothing to other accounts', async () => {
    const issued = await ctx.api.post('/apikeys/', { username: 'lina', scope: 'read', id_group: yard });
    const limited = ctx.service.clientWith(issued.body.details.key);
    expect(await count('', limited)).toEqual({ total_documents: 1, result: [yardEntry] });
    const stranger = await ctx.service.client({ account: 'stranger' });
    expect(await count('', stranger)).toEqual({ total_documents: 0, result: [] });
    const ofDevice = await ctx.api.post('/apikeys/', { username: 'd', scope: 'device', id_device: idOf('yard') });
    const device = ctx.service.clientWith(ofDevice.body.details.key);
    expect(summarize(await device.get('/devices/deviceconfigs/counts/'))).toBe('4031');
  });

  it.each([
    ['config_status=applied', '4004 config_status'],
    ['max=1001', '4004 max'],
    ['sort=name', '4004 sort'],
    ['x=1', '4004 x'],
  ])('reject %s', async (query, expected) => {
    expect(summarize(await reader.get(`/devices/deviceconfigs/counts/?${query}`))).toBe(expected);
  });

  it('come as CSV and XML', async () => {
    const where = '/devices/deviceconfigs/counts/?config=boot.cfg&config_status=refused';
    expect((await reader.get(`${where}&format=csv`)).text).toBe(
      'name,desired,reported,status,count\r\nboot.cfg,2,,refused,1\r\nboot.cfg,2,2,refused,1\r\n',
    );
    expect((await reader.get(where, { Accept: 'application/xml' })).text).toContain('<status>refused</status>');
  });

  it('have the states that earlier versions stored, after the upgrade', async () => {
    const states = ctx.service.db.collection('device_states');
    const before = await count();
    await states.updateMany({}, { $unset: { configs: 1 } });
    expect((await count()).total_documents).toBe(0);
    await ctx.service.db.collection<{ _id: string }>('migrations').deleteOne({ _id: 'config-entries' });
    await migrate(ctx.service.db, upgradeContext);
    expect(await count()).toEqual(before);
  });

  it('are right for more states than an index is used for', async () => {
    const api = await ctx.service.client({ account: 'globex' });
    const applied = { name: 'boot.cfg', desired: '2', reported: '2', status: 'applied' } as const;
    const kept = { name: 'kept.cfg', desired: null, reported: '1', status: 'not_desired' } as const;
    const { db } = ctx.service;
    const states = Array.from({ length: 20_001 }, (_, number) => {
      const configs = number < 20_000 ? [applied] : [{ ...applied, reported: '1', status: 'pending' }, kept];
      return { _id: db.newId(), parent: db.newId(), account: 'globex', device: `d${number}@globex`, configs };
    });
    // a larger batch may take longer than a busy database has time
    for (let from = 0; from < states.length; from += 2000)
      await db.collection('device_states').insertMany(states.slice(from, from + 2000), { ordered: false });
    const counted = [
      { ...applied, count: 20_000 },
      { ...applied, reported: '1', status: 'pending', count: 1 },
    ];
    expect(await count('', api)).toEqual({ total_documents: 20_002, result: [...counted, { ...kept, count: 1 }] });
    expect(await count('?config=boot.cfg', api)).toEqual({ total_documents: 20_001, result: counted });
    expect((await count('?config=boot.cfg&config_status=applied', api)).total_documents).toBe(20_000);
    expect((await count('?config=kept.cfg', api)).result).toEqual([{ ...kept, count: 1 }]);
  });
});
