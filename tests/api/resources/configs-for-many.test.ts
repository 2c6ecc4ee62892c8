import { createHash } from 'node:crypto';
import { expect, it } from '@jest/globals';
import type { StoredDocument } from '../../../src/db/database.js';
import { removeUnusedContents } from '../../../src/device-configs/contents.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { pathOf } from '../../support/service.js';

/** Files for many devices (reference/device-configs.md#many-devices). */
const ctx = await useTestService({ eventLog: true });
const base64 = (text: string) => Buffer.from(text).toString('base64');
const content = '{"speed":1}';
const boot = { name: 'boot.cfg', version: '1', file: base64(content), date_deployed: 1700000000.5 };
const configs = (id: string, ...rest: string[]) => pathOf('devices', id, 'deviceconfigs', ...rest);
const contents = () => ctx.service.db.collection('config_contents');
const countContents = () => contents().countDocuments();

/** A group with devices, and the filters that select them. */
async function createGroup(count: number) {
  const id_group = await ctx.fixtures.group();
  const ids: string[] = [];
  while (ids.length < count) ids.push(await ctx.fixtures.device({ id_group }));
  return { id_group, ids, query: `?id_group=${encodeURIComponent(id_group)}` };
}

const store = (query: string, body: object = boot) => ctx.api.post(`/devices/deviceconfigs/${query}`, body);
const desire = (query: string, version: string | null, name = 'boot.cfg') =>
  ctx.api.put(`/devices/deviceconfigs/${name}/desired/${query}`, { version });

it('gives a file to all that match once it is confirmed, and stores its content once', async () => {
  const { ids, query } = await createGroup(3);
  const before = await countContents();
  expect((await store(query)).body).toEqual({ code: 2006, message: 'would change', details: { matched: 3 } });
  expect(await countContents()).toBe(before);
  expect((await store(`${query}&confirm=2`)).body).toMatchObject({ code: 4005, details: { matched: 3 } });
  for (const id of ids) expect((await ctx.api.get(configs(id))).body.total_documents).toBe(0);
  const reply = await store(`${query}&confirm=3`);
  expect([reply.status, reply.body]).toEqual([
    200,
    { code: 2001, message: 'Device_configs created', details: { matched: 3, changed: 3 } },
  ]);
  expect(await countContents()).toBe(before + 1);
  const checksum = createHash('sha1').update(content).digest('hex');
  const audit = { owner: 'alice', updater: 'alice', created_at: ctx.service.now(), updated_at: ctx.service.now() };
  for (const id of ids) {
    const { file, ...fields } = boot;
    const listed = { ...fields, size: 11, checksum, device: id, ...audit };
    expect((await ctx.api.get(configs(id))).body.result).toEqual([listed]);
    const download = await ctx.api.get(configs(id, 'boot.cfg'), { Range: 'bytes=2-6' });
    expect([download.status, String(download.body), download.headers.etag]).toEqual([206, 'speed', `"${checksum}"`]);
    const shown = await ctx.api.get(configs(id, 'boot.cfg', '1'), { Accept: 'application/json' });
    expect(shown.body).toEqual({ ...listed, file });
  }
  const events = await waitForEvents(ctx.api, 'type=deviceconfig.created&max=1000', 3);
  expect(events.filter(({ id_developer }) => ids.includes(id_developer)).map(({ data }) => data)).toEqual(
    Array(3).fill({ name: 'boot.cfg', version: '1' }),
  );
});

it('leaves alone who has it, and changes none where one has other content', async () => {
  const { ids, query } = await createGroup(3);
  const [first = '', second = ''] = ids;
  await ctx.api.post(configs(first), boot);
  expect((await store(`${query}&confirm=3`)).body.details).toEqual({ matched: 3, changed: 2 });
  expect((await store(`${query}&confirm=3`)).body.details).toEqual({ matched: 3, changed: 0 });
  await ctx.api.post(configs(second), { ...boot, version: '2' });
  const reply = await store(`${query}&confirm=3`, { ...boot, version: '2', file: base64('other') });
  expect([summarize(reply), reply.body.details]).toEqual(['4003 version', { version: 'exists with other content' }]);
  expect((await ctx.api.get(configs(first))).body.total_documents).toBe(1);
});

it.each([
  ['', boot, '4004 filter'],
  ['?type=pump&name=', boot, '4004 name'],
  ['?type=pump&confirm=-1', boot, '4004 confirm'],
  ['?type=pump', { ...boot, name: 'a/b', more: 1 }, '4003 more name'],
  ['?type=pump', { ...boot, file: 'YQ' }, '4003 file'],
])('refuses %j with %j', async (query, body, expected) => {
  expect(summarize(await store(query, body))).toBe(expected);
});

it('makes a version the desired one of all, and takes it back', async () => {
  const { ids, query } = await createGroup(2);
  await store(`${query}&confirm=2`);
  expect((await desire(query, '1')).body).toEqual({ code: 2006, message: 'would change', details: { matched: 2 } });
  const reply = await desire(`${query}&confirm=2`, '1');
  expect([reply.status, reply.body]).toEqual([
    200,
    { code: 2005, message: 'state updated', details: { matched: 2, changed: 2 } },
  ]);
  for (const id of ids) {
    const { body } = await ctx.api.get(pathOf('devices', id, 'state'));
    expect(body.desired).toEqual({
      configs: { 'boot.cfg': { version: '1', size: 11, checksum: createHash('sha1').update(content).digest('hex') } },
    });
    expect(body.desired_version).toBe(1);
  }
  const events = await waitForEvents(ctx.api, 'type=config.desired&max=1000', 2);
  expect(events.filter(({ id_developer }) => ids.includes(id_developer)).map(({ data, user }) => [data, user])).toEqual(
    Array(2).fill([{ name: 'boot.cfg', version: '1' }, 'alice']),
  );
  const fleet = (await ctx.api.get(`/devices/${query}&config=boot.cfg&config_status=pending`)).body;
  expect(fleet.total_documents).toBe(2);
  expect((await desire(`${query}&confirm=2`, null)).body.details).toEqual({ matched: 2, changed: 2 });
  expect((await ctx.api.get(pathOf('devices', ids[0] ?? '', 'state'))).body.desired).toEqual({});
});

it('makes it the desired one of none where one does not have it', async () => {
  const { ids, query } = await createGroup(2);
  await ctx.api.post(configs(ids[0] ?? ''), boot);
  const reply = await desire(`${query}&confirm=2`, '1');
  expect([summarize(reply), reply.body.details]).toEqual([
    '4003 version',
    { version: 'does not exist for every device' },
  ]);
  expect((await ctx.api.get(pathOf('devices', ids[0] ?? '', 'state'))).body.desired_version).toBe(0);
});

it('keeps the content until the last device with it is deleted', async () => {
  const { ids, query } = await createGroup(2);
  const body = { ...boot, file: base64('kept to the last') };
  await store(`${query}&confirm=2`, body);
  const { db } = ctx.service;
  const find = () =>
    contents().countDocuments({ account: 'acme', file: { $exists: true }, _id: nameOf(body) as never });
  const sweep = async () => {
    ctx.service.advance(121);
    await removeUnusedContents(db, ctx.service.now());
  };
  await ctx.api.delete(pathOf('devices', ids[0] ?? ''));
  await sweep();
  expect(await find()).toBe(1);
  expect((await ctx.api.get(configs(ids[1] ?? '', 'boot.cfg'))).status).toBe(200);
  // the same content again, while no device has it any more
  await ctx.api.delete(pathOf('devices', ids[1] ?? ''));
  ctx.service.advance(121);
  const again = await createGroup(1);
  await store(`${again.query}&confirm=1`, body);
  await removeUnusedContents(db, ctx.service.now());
  expect(await find()).toBe(1);
  await ctx.api.delete(pathOf('devices', again.ids[0] ?? ''));
  await sweep();
  expect(await find()).toBe(0);
});

const nameOf = ({ file }: { file: string }) =>
  `acme ${createHash('sha256').update(Buffer.from(file, 'base64')).digest('hex')}`;

it('is refused to a key that is limited to a device, and stays within the limit of others', async () => {
  const { ids, id_group, query } = await createGroup(1);
  await createGroup(1);
  const issue = async (fields: object) => {
    const { body } = await ctx.api.post('/apikeys/', { username: 'bob', ...fields });
    return ctx.service.clientWith(body.details.key);
  };
  const own = await issue({ scope: 'device', id_device: ids[0] });
  expect(summarize(await own.post(`/devices/deviceconfigs/${query}`, boot))).toBe('4031');
  const limited = await issue({ scope: 'write', id_group });
  const reply = await limited.post('/devices/deviceconfigs/?enabled=1', boot);
  expect(reply.body).toMatchObject({ code: 2006, details: { matched: 1 } });
});

it('serves more devices than one transaction takes', async () => {
  const { ids, id_group, query } = await createGroup(1);
  const { db } = ctx.service;
  const pattern = (await db.collection('devices').findOne({ id_developer: ids[0] })) as StoredDocument;
  const count = 1100;
  const copies = Array.from({ length: count - 1 }, (_, n) => {
    return { ...pattern, _id: db.newId(), id_developer: `copy ${n} of ${id_group}`, name: `copy ${n} of ${id_group}` };
  });
  await db.collection('devices').insertMany(copies);
  expect((await store(`${query}&confirm=${count}`)).body.details).toEqual({ matched: count, changed: count });
  expect((await desire(`${query}&confirm=${count}`, '1')).body.details).toEqual({ matched: count, changed: count });
  const fleet = `/devices/counts/${query}&config=boot.cfg&config_desired=1&by=enabled`;
  expect((await ctx.api.get(fleet)).body.result).toMatchObject([{ count }]);
  expect(await db.collection('bulkchanges').countDocuments()).toBe(0);
  const wanted = { ...boot, version: '2', file: base64('x') };
  await ctx.api.post(configs(ids[0] ?? ''), { ...wanted, file: base64('y') });
  expect(summarize(await store(`${query}&confirm=${count}`, wanted))).toBe('4003 version');
  expect(
    await db
      .collection('deviceconfigs')
      .countDocuments({ version: '2', device: { $in: [...ids, copies[0]?.id_developer] } }),
  ).toBe(1);
});
