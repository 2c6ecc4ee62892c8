import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { local } from '../../../src/file-storage/providers/local.js';
import { useTestService } from '../../support/expect-status.js';
import { type ListedEvent, waitForEvents } from '../../support/logged-events.js';
import { pathOf } from '../../support/service.js';

const root = mkdtempSync(join(tmpdir(), 'events-'));
const ctx = await useTestService({ eventLog: true, providers: [local], filestore_local_root: root });
afterAll(() => rmSync(root, { recursive: true }));

/** Returns an event without its id and times. */
const summary = ({ id: _id, at: _at, request_id: _request, ...event }: ListedEvent) => event;

async function createTree() {
  const project = await ctx.fixtures.project();
  const service = await ctx.fixtures.service({ id_project: project });
  const group = await ctx.fixtures.group({ id_service: service });
  const asset = await ctx.fixtures.asset({ id_group: group });
  const device = await ctx.fixtures.device({ id_asset: asset });
  return { project, service, group, asset, device };
}

describe('the event log (reference/events.md#types)', () => {
  it('names the request that deleted an object, of several that delete it at once', async () => {
    const group = await ctx.fixtures.group();
    const users = ['alice', 'bob', 'carol'];
    const clients = await Promise.all(users.map((username) => ctx.service.client({ username })));
    const deleted: { id_developer: string; user: string | undefined }[] = [];
    for (let round = 0; round < 20; round++) {
      const id_developer = await ctx.fixtures.device({ id_group: group });
      const replies = await Promise.all(clients.map((api) => api.delete(pathOf('devices', id_developer))));
      expect(replies.map(({ body }) => body.code).toSorted()).toEqual([2004, 4041, 4041]);
      deleted.push({ id_developer, user: users[replies.findIndex(({ body }) => body.code === 2004)] });
    }
    const filter = `type=device.deleted&id_group=${encodeURIComponent(group)}`;
    const events = await waitForEvents(ctx.api, filter, deleted.length);
    expect(events.map(({ id_developer, user }) => ({ id_developer, user }))).toEqual(deleted);
  });

  it('is read from the beginning with after=0, then with the next of each page', async () => {
    const { project } = await createTree();
    const filter = `id_project=${encodeURIComponent(project)}`;
    const events = await waitForEvents(ctx.api, filter, 4);
    const read = async (max: number, after: string) =>
      (await ctx.api.get(`/events/?${filter}&max=${max}&after=${after}`)).body;
    const [first, second] = [events.slice(0, 2), events.slice(2)];
    expect(await read(2, '0')).toEqual({ total_documents: 4, result: first, next: first[1]?.id });
    expect(await read(2, first[1]?.id ?? '')).toEqual({ total_documents: 2, result: second });
    expect(await read(5, '0')).toEqual({ total_documents: 4, result: events });
    expect(await read(1, events[3]?.id ?? '')).toEqual({ total_documents: 0, result: [] });
    for (const query of ['after=1', 'after=0&order=-1'])
      expect((await ctx.api.get(`/events/?${query}`)).body.code).toBe(4004);
  });

  it('has one event for each create, update and delete, with what is above the object', async () => {
    const { project, service, group, asset, device } = await createTree();
    const above = { id_project: project, id_service: service, id_group: group };
    const before = Date.now() / 1000;
    const reply = await ctx.api.put(pathOf('devices', device), { description: 'a', type: 'gateway', lon: 1, lat: 2 });
    expect((await ctx.api.put(pathOf('devices', device), { id_group: group })).body.code).toBe(2005);
    expect((await ctx.api.delete(pathOf('devices', device))).body.code).toBe(2004);
    const events = await waitForEvents(ctx.api, `id_project=${encodeURIComponent(project)}`, 7);
    const user = 'alice';
    const events_of_device = { resource: 'device', id_developer: device, user };
    expect(events.map(summary)).toEqual([
      { type: 'service.created', resource: 'service', id_developer: service, user, id_project: project },
      {
        ...{ type: 'group.created', resource: 'group', id_developer: group, user },
        ...{ id_project: project, id_service: service },
      },
      { type: 'asset.created', resource: 'asset', id_developer: asset, user, ...above },
      { ...events_of_device, type: 'device.created', ...above, id_asset: asset },
      {
        ...{ ...events_of_device, type: 'device.updated', ...above, id_asset: asset },
        data: { version: 1, changed: ['description', 'lon', 'lat'] },
      },
      {
        ...{ ...events_of_device, type: 'device.updated', ...above },
        data: { version: 2, changed: ['id_group', 'id_asset'] },
      },
      { ...events_of_device, type: 'device.deleted', ...above },
    ]);
    const [updated] = events.filter(({ type }) => type === 'device.updated');
    expect(updated?.request_id).toBe(reply.headers['x-request-id']);
    expect(updated?.at).toBeGreaterThan(before - 0.1);
    expect(updated?.at).toBeLessThan(Date.now() / 1000 + 0.1);
    expect(events.map(({ id }) => id)).toEqual(events.map(({ id }) => id).toSorted());
    const [created] = await waitForEvents(ctx.api, `type=project.&id_developer=${encodeURIComponent(project)}`, 1);
    expect(created && summary(created)).toEqual({
      type: 'project.created',
      resource: 'project',
      id_developer: project,
      user,
    });
  });

  it('names the settings of a storage that changed, not their values', async () => {
    for (const folder of ['june', 'july']) mkdirSync(join(root, 'acme', folder), { recursive: true });
    const address = '/external/local/user/alice/';
    for (const path of ['june', 'june', 'july']) expect((await ctx.api.put(address, { path })).status).toBe(200);
    expect((await ctx.api.delete(address)).body.code).toBe(2004);
    const place = { provider: 'local', username: 'alice' };
    expect((await waitForEvents(ctx.api, 'type=storage.', 4)).map(({ type, data }) => [type, data])).toEqual([
      ['storage.linked', place],
      ['storage.updated', { changed: [] }],
      ['storage.updated', { changed: ['path'] }],
      ['storage.unlinked', place],
    ]);
  });

  it('has one event for each object that a cascade removes, streams aside', async () => {
    const { project, service, group, asset, device } = await createTree();
    const other = await ctx.fixtures.device({ id_group: group });
    const path = (...segments: string[]) => pathOf('devices', device, ...segments);
    const mqtt = (...segments: string[]) => pathOf('mqttdevices', device, ...segments);
    await ctx.api.post(path('streams'), { data: { t: 1 } });
    await ctx.api.post(mqtt('credentials'), { username: `u-${device}`, password: 'long enough' });
    await ctx.api.post(mqtt('topics'), { name: 'a/b' });
    await ctx.api.post(path('deviceconfigs'), { name: 'c', version: '1', file: 'AAAA' });
    const bob = await ctx.service.client({ username: 'bob' });
    const { headers } = await bob.delete(pathOf('projects', project));
    const query = `user=bob&id_project=${encodeURIComponent(project)}`;
    const removed = await waitForEvents(ctx.api, query, 7);
    const types = removed.map(({ type, id_developer }) => `${type} ${id_developer}`).toSorted();
    expect(types).toEqual(
      [
        `service.deleted ${service}`,
        `group.deleted ${group}`,
        `asset.deleted ${asset}`,
        `device.deleted ${device}`,
        `device.deleted ${other}`,
        `credentials.deleted ${device}`,
        `topic.deleted ${device}`,
      ].toSorted(),
    );
    expect(removed.map(({ request_id }) => request_id)).toEqual(removed.map(() => headers['x-request-id']));
    const [root] = await waitForEvents(ctx.api, `type=project.deleted&id_developer=${encodeURIComponent(project)}`, 1);
    expect(root?.user).toBe('bob');
    const topic = removed.find(({ type }) => type === 'topic.deleted');
    expect(topic && summary(topic)).toMatchObject({ id_asset: asset, id_group: group, data: { name: 'a/b' } });
    const created = await waitForEvents(ctx.api, `user=alice&id_asset=${encodeURIComponent(asset)}`, 4);
    expect(created.map(({ type }) => type)).toEqual([
      'device.created',
      'credentials.created',
      'topic.created',
      'deviceconfig.created',
    ]);
    expect(created[3]?.data).toEqual({ name: 'c', version: '1' });
  });

  it('has no event for what is refused', async () => {
    const { device, group } = await createTree();
    const path = pathOf('devices', device);
    expect((await ctx.api.put(path, { version: 7 })).body.code).toBe(4005);
    expect((await ctx.api.put(path, { type: 5 })).body.code).toBe(4003);
    expect((await ctx.api.post('/groups/', { name: group.split('@')[0], id_service: 'no@acme' })).body.code).toBe(4003);
    expect((await ctx.api.delete(pathOf('devices', 'none@acme'))).body.code).toBe(4041);
    expect((await ctx.api.put(path, { description: 'last' })).body.code).toBe(2005);
    const events = await waitForEvents(ctx.api, `id_developer=${encodeURIComponent(device)}`, 2);
    expect(events.map(({ type }) => type)).toEqual(['device.created', 'device.updated']);
  });

  it('logs keys, credentials, topics and removed streams', async () => {
    const { device } = await createTree();
    const path = (...segments: string[]) => pathOf('devices', device, ...segments);
    const mqtt = (...segments: string[]) => pathOf('mqttdevices', device, ...segments);
    const { body } = await ctx.api.post('/apikeys/', { username: 'carol', scope: 'read' });
    const { id } = body.details;
    await ctx.api.delete(pathOf('apikeys', id));
    const keys = await waitForEvents(ctx.api, `id_developer=${id}`, 2);
    expect(keys.map(summary)).toEqual(
      ['apikey.created', 'apikey.deleted'].map((type) => ({
        ...{ type, resource: 'apikey', id_developer: id, user: 'alice' },
        data: { username: 'carol', scope: 'read' },
      })),
    );
    const username = `login-${device}`;
    await ctx.api.post(mqtt('credentials'), { username, password: 'long enough' });
    await ctx.api.put(mqtt('credentials'), { username, password: 'another one' });
    await ctx.api.delete(mqtt());
    await ctx.api.post(mqtt('topics'), { name: 'x' });
    await ctx.api.delete(mqtt('topics'), { name: 'x' });
    await ctx.api.post(path('streams'), [
      { at: 1, data: {} },
      { at: 2, data: {} },
    ]);
    await ctx.api.delete(`${path('streams')}?at_from=2`);
    await ctx.api.delete(`${path('streams')}?at_from=9`);
    const query = `id_developer=${encodeURIComponent(device)}`;
    // the first stream also changes the status
    const all = await waitForEvents(ctx.api, query, 8);
    const events = all.filter(({ type }) => type !== 'device.status_changed');
    expect(events.slice(1).map(({ type, data }) => ({ type, data }))).toEqual([
      { type: 'credentials.created', data: { username } },
      { type: 'credentials.updated', data: { changed: ['password'] } },
      { type: 'credentials.deleted', data: { username } },
      { type: 'topic.created', data: { name: 'x' } },
      { type: 'topic.deleted', data: { name: 'x' } },
      { type: 'streams.deleted', data: { count: 1, filters: { at_from: 2 } } },
    ]);
    expect(JSON.stringify(events)).not.toMatch(/long enough|another one|scrypt/);
  });
});

describe('changes of the status (reference/events.md#status-changes)', () => {
  it('are events, once, with the time of the deadline or of the stream', async () => {
    const { device } = await createTree();
    const path = pathOf('devices', device);
    await ctx.api.put(path, { frequency_stream: 1, frequency_status: 2 });
    const started = ctx.service.now();
    const send = (_t: string) => ctx.api.post(pathOf('devices', device, 'streams'), { _t, data: {} });
    await send('str');
    const query = `type=device.status_changed&id_developer=${encodeURIComponent(device)}`;
    await waitForEvents(ctx.api, query, 1);
    await send('sta');
    await waitForEvents(ctx.api, query, 2);
    ctx.service.advance(60);
    await waitForEvents(ctx.api, query, 3);
    ctx.service.advance(60);
    await waitForEvents(ctx.api, query, 4);
    ctx.service.advance(10);
    await send('str');
    const events = await waitForEvents(ctx.api, query, 5);
    const changes: [string, string, number][] = [
      ['disconnected', 'no_status', 0],
      ['no_status', 'ok', 0],
      ['ok', 'no_data', 60],
      ['no_data', 'disconnected', 120],
      ['disconnected', 'no_status', 130],
    ];
    expect(events.map(({ at, data, user }) => ({ at, data, user }))).toEqual(
      changes.map(([from, to, after]) => ({
        at: started + after,
        data: { from, to, since: started + after },
        user: undefined,
      })),
    );
    expect((await ctx.api.get(path)).body).toMatchObject({ status: 'no_status', version: 1 });
  });

  it('are not repeated when the clock is set back', async () => {
    const { device } = await createTree();
    const path = pathOf('devices', device);
    await ctx.api.put(path, { frequency_stream: 1 });
    await ctx.api.post(pathOf('devices', device, 'streams'), { data: {} });
    const query = `type=device.status_changed&id_developer=${encodeURIComponent(device)}`;
    await waitForEvents(ctx.api, query, 1);
    ctx.service.advance(61);
    await waitForEvents(ctx.api, query, 2);
    ctx.service.advance(-30);
    const other = await createTree();
    await ctx.api.post(pathOf('devices', other.device, 'streams'), { data: {} });
    // the watch has looked at both devices by now
    await waitForEvents(ctx.api, `type=device.status_changed&id_developer=${encodeURIComponent(other.device)}`, 1);
    ctx.service.advance(30);
    await ctx.api.put(pathOf('devices', other.device), { description: 'later' });
    await waitForEvents(ctx.api, `type=device.updated&id_developer=${encodeURIComponent(other.device)}`, 1);
    expect((await waitForEvents(ctx.api, query, 2)).map(({ data }) => data?.to)).toEqual(['no_status', 'disconnected']);
  });
});
