import { afterAll, expect, it } from '@jest/globals';
import { type ListedEvent, waitForEvents } from '../support/logged-events.js';
import { type Api, createFixtures, pathOf, startTestService } from '../support/service.js';
import { createKey, follow } from '../support/sse.js';

/** Events and live feeds of limited keys (reference/access.md#limited-keys). */

const service = await startTestService({ eventLog: true });
// its clock stands still, while objects are created at the time of the machine
service.advance(3600);
const admin = await service.client();
const fixtures = createFixtures(admin);
afterAll(() => service.stop());

interface Limited {
  id: string;
  key: string;
  api: Api;
}

async function limit(field: string, id_developer: string, scope = 'read'): Promise<Limited> {
  const { details } = (await admin.post('/apikeys/', { username: 'bob', scope, [field]: id_developer })).body;
  return { ...details, api: service.clientWith(details.key) };
}

const subjects = (events: readonly ListedEvent[]) => events.map(({ type, id_developer }) => `${type} ${id_developer}`);
const listed = async ({ api }: Limited, query = '') =>
  subjects((await api.get(`/events/?order=1&${query}`)).body.result);

/** Waits until the log has everything that was done so far. */
async function settle(): Promise<void> {
  const marker = await fixtures.model();
  await waitForEvents(admin, `type=model.created&id_developer=${encodeURIComponent(marker)}`, 1);
}

it('shows an object where it was at the time of the event', async () => {
  const id_project = await fixtures.project({ name: 'P' });
  const id_service = await fixtures.service({ name: 'S', id_project });
  const g1 = await fixtures.group({ name: 'G1', id_service });
  const g2 = await fixtures.group({ name: 'G2', id_service });
  const a = await fixtures.asset({ name: 'A', id_group: g1 });
  const d = await fixtures.device({ name: 'D', id_asset: a });
  const [ofProject, ofG1, ofG2, ofA, ofD] = await Promise.all([
    limit('id_project', id_project),
    limit('id_group', g1),
    limit('id_group', g2),
    limit('id_asset', a),
    limit('id_device', d),
  ]);
  await admin.put(pathOf('devices', d), { firmware: '1' });
  await admin.post(pathOf('devices', d, 'deviceconfigs'), { name: 'f', version: '1', file: 'eA==' });
  await admin.post(pathOf('mqttdevices', d, 'topics'), { name: 'valves/#' });
  await admin.put(pathOf('assets', a), { id_group: g2 });
  await admin.put(pathOf('devices', d), { firmware: '2' });
  await admin.patch(pathOf('devices', d, 'state'), { interval: 5 });
  await admin.put(pathOf('devices', d), { id_group: g1 });
  await admin.post(pathOf('devices', d, 'streams'), { at: 5, data: {} });
  await waitForEvents(admin, 'type=device.status_changed', 1);
  await admin.delete(pathOf('devices', d, 'streams'), { at: 5 });
  await settle();
  const before = [
    'asset.created A@acme',
    'device.created D@acme',
    'device.updated D@acme',
    'deviceconfig.created D@acme',
    'topic.created D@acme',
  ];
  const moved = ['asset.updated A@acme', 'device.updated D@acme', 'state.desired D@acme'];
  const back = ['device.updated D@acme', 'device.status_changed D@acme', 'streams.deleted D@acme'];
  const all = [...before, ...moved, ...back];
  expect(await listed(ofD)).toEqual(all.filter((text) => text.endsWith(' D@acme')));
  await admin.delete(pathOf('devices', d));
  await settle();
  const deleted = ['device.deleted D@acme', 'topic.deleted D@acme'];
  expect(await listed(ofG1)).toEqual(['group.created G1@acme', ...before, ...back, ...deleted]);
  expect(await listed(ofG2)).toEqual(['group.created G2@acme', ...moved]);
  expect(await listed(ofA)).toEqual([...before, ...moved]);
  expect(await listed(ofProject)).toEqual([
    'project.created P@acme',
    'service.created S@acme',
    'group.created G1@acme',
    'group.created G2@acme',
    ...all,
    ...deleted,
  ]);
  const page = (await ofProject.api.get('/events/?max=3&offset=1')).body;
  expect([page.total_documents, page.result.length]).toEqual([17, 3]);
  expect(await listed(ofG2, 'type=device.')).toEqual(['device.updated D@acme']);
  expect(await listed(ofG1, `id_group=${encodeURIComponent(g2)}`)).toEqual([]);
  expect(await listed(ofG2, `id_project=${encodeURIComponent(id_project)}`)).toHaveLength(4);
  expect(await listed(ofG1, 'type=apikey.')).toEqual([]);
  expect(await listed(ofG1, 'type=model.')).toEqual([]);
});

it('does not show events of other objects with the same identifier', async () => {
  const id_group = await fixtures.group({ name: 'same' });
  await fixtures.device({ name: 'same', id_group: await fixtures.group() });
  await settle();
  expect(await listed(await limit('id_group', id_group))).toEqual(['group.created same@acme']);
  expect(await listed(await limit('id_device', 'same@acme'))).toEqual(['device.created same@acme']);
});

it('does not show events of an earlier object with the same identifier', async () => {
  const id_group = await fixtures.group({ name: 'again' });
  const id = await fixtures.device({ name: 'again', id_group });
  await admin.put(pathOf('devices', id), { firmware: 'of the earlier one' });
  await admin.delete(pathOf('devices', id));
  // the second in which the first one was deleted is over
  const deleted = Math.floor(Date.now() / 1000);
  while (Math.floor(Date.now() / 1000) === deleted) await new Promise((resolve) => setTimeout(resolve, 20));
  expect(await fixtures.device({ name: 'again', id_group })).toBe(id);
  await settle();
  expect(await listed(await limit('id_device', id))).toEqual(['device.created again@acme']);
  expect(await listed(await limit('id_group', id_group))).toContain('device.deleted again@acme');
});

it('sends live feeds of what is within reach, also when they are resumed', async () => {
  const inside = await fixtures.group();
  const outside = await fixtures.group();
  const { key, id } = await limit('id_group', inside);
  const headers = { 'service.apikey': key };
  const d = await fixtures.device({ name: 'feed in', id_group: inside });
  const e = await fixtures.device({ name: 'feed out', id_group: outside });
  await settle();
  const events = await follow(`${service.url}/events/live/?after=0`, headers);
  const streams = await follow(`${service.url}/streams/live/`, headers);
  await events.contains('feed in@acme');
  const namesOf = (text: string) => [...new Set(text.match(/feed \w+@acme/g))];
  for (const device of [e, d]) await admin.post(pathOf('devices', device, 'streams'), { data: {} });
  await streams.contains('feed in@acme');
  await admin.put(pathOf('devices', e), { firmware: '3' });
  await admin.put(pathOf('devices', d), { firmware: '3' });
  await events.contains('"changed":["firmware"]');
  expect([namesOf(events.text()), namesOf(streams.text())]).toEqual([['feed in@acme'], ['feed in@acme']]);
  await admin.put(pathOf('devices', d), { id_group: outside });
  await admin.put(pathOf('devices', e), { id_group: inside });
  for (const device of [d, e]) {
    await admin.post(pathOf('devices', device, 'streams'), { data: { moved: device } });
    await admin.put(pathOf('devices', device), { firmware: `4 ${device}` });
  }
  await streams.contains('"moved":"feed out');
  await events.contains('feed out@acme');
  await events.contains('"version":3');
  expect(streams.text()).not.toContain('"moved":"feed in');
  const updates = events.messages.map(({ data }) => `${data.id_developer} ${data.data?.version}`);
  expect(updates).toEqual(expect.arrayContaining(['feed out@acme 2', 'feed out@acme 3']));
  expect(updates).not.toContain('feed in@acme 2');
  const path = pathOf('devices', d, 'streams');
  expect((await service.clientWith(key).get(`${path}live/`)).status).toBe(404);
  await admin.delete(pathOf('groups', inside));
  // the deletion of its object ends the key, and so its feeds
  await Promise.all([events.ended, streams.ended]);
  expect(await service.db.collection('apikeys').countDocuments({ id })).toBe(0);
});

it('ends a feed of commands when the device is moved out of reach', async () => {
  const id_group = await fixtures.group();
  const device = await fixtures.device({ id_group });
  const { key } = await limit('id_group', id_group);
  const commands = pathOf('devices', device, 'commands');
  const feed = await follow(`${service.url}${commands}live/`, { 'service.apikey': key });
  await admin.post(commands, { name: 'first' });
  await feed.contains('"name":"first"');
  await admin.put(pathOf('devices', device), { id_group: await fixtures.group() });
  await admin.post(commands, { name: 'second' });
  await feed.ended;
  expect(feed.text()).not.toContain('second');
});

it('ends a feed of commands when its device is another one of the same identifier', async () => {
  const id_group = await fixtures.group();
  const device = await fixtures.device({ id_group, name: 'made again' });
  const { key } = await createKey(service);
  const commands = pathOf('devices', device, 'commands');
  const feed = await follow(`${service.url}${commands}live/`, { 'service.apikey': key });
  await admin.post(commands, { name: 'first' });
  await feed.contains('"name":"first"');
  await admin.delete(pathOf('devices', device));
  expect(await fixtures.device({ id_group, name: 'made again' })).toBe(device);
  await admin.post(commands, { name: 'second' });
  await feed.ended;
  expect(feed.text()).not.toContain('second');
});
