import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, it } from '@jest/globals';
import type mongoose from 'mongoose';
import { follow } from '../../../scripts/support/follow.js';
import { type RunningService, type TestMongod, useSandbox, waitUntil } from '../../support/process.js';

const key = 'key-of-this-test';
const secrets = { SECRET_KEY: 'only for this test', BOOTSTRAP_API_KEY: key };
const sandbox = useSandbox();
let mongod: TestMongod;

beforeAll(async () => {
  // MongoDB forgets in pieces of 16 MiB, behind its last checkpoint
  mongod = await sandbox.mongod(['--oplogSize', '1', '--syncdelay', '1']);
  await mongod.start();
});

function startService(): Promise<RunningService> {
  return sandbox.service({ ...secrets, MONGODB_URI: mongod.uri });
}

async function listEvents(service: RunningService, query = '') {
  const { body } = await service.send('GET', `/events/?order=1&max=100${query}`);
  return body.result as { id: string; type: string; at: number; id_developer: string; data?: object }[];
}

/** Writes until the database has forgotten the changes up to now. */
async function loseHistory(): Promise<void> {
  const { client } = sandbox.database(mongod.uri);
  const oplog = client.db('local').collection('oplog.rs');
  const findEdge = async (order: 1 | -1) =>
    (await oplog.findOne({}, { sort: { $natural: order }, projection: { ts: 1 } }))?.ts as mongoose.mongo.Timestamp;
  const now = await findEdge(-1);
  const filler = client.db('filler').collection('filler');
  await waitUntil(async () => {
    for (let count = 0; count < 8; count++) await filler.insertOne({ text: 'x'.repeat(2 ** 20) });
    await sleep(500);
    return (await findEdge(1)).greaterThan(now);
  });
}

it('reports changes that the database forgot while the service was down, and reads on behind them', async () => {
  const before = await startService();
  const headers = { 'service.apikey': key };
  await before.create('projects', { name: 'factory', id_customer: 'c' });
  await before.create('services', { name: 'cooling', id_project: 'factory@demo' });
  await before.create('groups', { name: 'hall', id_service: 'cooling@demo' });
  await before.create('devices', { name: 'first', type: 'pump', id_group: 'hall@demo' });
  await waitUntil(async () => (await listEvents(before, '&type=device.created')).length === 1);
  const feed = await follow(`${before.url}/streams/live/`, headers);
  const sent = await before.send('POST', '/devices/first@demo/streams/', { data: { n: 1 } });
  expect(sent.body.code).toBe(2001);
  await feed.received(1);
  const { id: stream_id } = feed.messages[0] ?? { id: '' };
  await feed.close();
  await before.stop();
  const stopped_at = Date.now() / 1000;
  await loseHistory();

  const after = await startService();
  await waitUntil(async () => (await listEvents(after, '&type=log.gap')).length > 0);
  await after.create('devices', { name: 'second', type: 'pump', id_group: 'hall@demo' });
  await waitUntil(async () => (await listEvents(after, '&type=device.created')).length === 2);
  const events = await listEvents(after);
  expect(events.map(({ type }) => type).filter((type) => /^(device.created|log.gap)$/.test(type))).toEqual([
    'device.created',
    'log.gap',
    'device.created',
  ]);
  const gap = events.find(({ type }) => type === 'log.gap');
  expect(gap).toMatchObject({ id_developer: 'demo', data: { from: expect.any(Number), to: expect.any(Number) } });
  const { from, to } = (gap?.data ?? {}) as { from: number; to: number };
  expect(from).toBeLessThanOrEqual(stopped_at);
  expect(to).toBeGreaterThanOrEqual(stopped_at);
  expect(gap?.at).toBe(to);
  expect(after.out() + after.err()).toContain('event log has a gap');

  // the feed of events resumes from the log itself, that of streams cannot
  const events_feed = await follow(`${after.url}/events/live/?type=device.created&after=${events[0]?.id}`, headers);
  expect((await events_feed.received(1)).map(({ event }) => event)).toContain('device.created');
  await events_feed.close();
  const refused = await after.send('GET', `/streams/live/?after=${stream_id}`);
  expect([refused.status, refused.body.code]).toEqual([400, 4004]);
  expect(refused.body.details).toEqual({ after: 'is too old: the database has forgotten what came after it' });
});
