import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { findOrphans } from '../support/orphans.js';
import { openSandbox, type RunningService, type Sandbox, waitUntil } from '../support/process.js';

type Db = mongoose.mongo.Db;

const { UUID } = mongoose.mongo;
const collections = ['projects', 'services', 'groups', 'assets', 'devices'];
const beneathDevices = ['deviceconfigs', 'streams', 'mqttcredentials', 'mqtttopics'];

let sandbox: Sandbox;

beforeEach(async () => {
  sandbox = await openSandbox();
});
afterEach(() => sandbox.close());

async function create(service: RunningService, plural: string, body: object): Promise<string> {
  const reply = await service.send('POST', `/${plural}/`, body);
  if (reply.body.code !== 2001) throw new Error(reply.text);
  return decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
}

/** A project with `count` devices, half of them in 10 assets, and something of every kind beneath each tenth. */
async function plant(service: RunningService, db: Db, name: string, count: number): Promise<void> {
  const id_project = await create(service, 'projects', { name, id_customer: 'c' });
  const id_service = await create(service, 'services', { name, id_project });
  const id_group = await create(service, 'groups', { name, id_service });
  const homes: object[] = Array(10).fill({ id_group });
  for (let n = 0; n < 10; n++)
    homes.push({ id_asset: await create(service, 'assets', { name: `${name} ${n}`, id_group }) });
  const devices = await Promise.all(homes.map((home) => create(service, 'devices', { name, type: 't', ...home })));
  const [first = ''] = devices;
  for (const [path, body] of [
    [`/devices/${first}/deviceconfigs/`, { name: 'a', version: '1', file: 'eA==' }],
    [`/devices/${first}/streams/`, { data: { a: 1 } }],
    [`/mqttdevices/${first}/credentials/`, { username: name, password: 'not a secret' }],
    [`/mqttdevices/${first}/topics/`, { name: 'a' }],
  ] as const) {
    expect((await service.send('POST', path, body)).body.code).toBe(2001);
  }
  // the others are copies of what the service stores
  const made = await db
    .collection('devices')
    .find({ id_developer: { $in: devices } })
    .toArray();
  const copies = Array.from({ length: count - made.length }, (_, n) => ({
    ...made[n % made.length],
    _id: new UUID() as never,
    id_developer: `${name}-copy-${n}@demo`,
  }));
  await db.collection('devices').insertMany(copies);
  const tenth = copies.filter((_, n) => n % 10 === 0);
  for (const plural of beneathDevices) {
    const [pattern] = await db.collection(plural).find({ device: first }).toArray();
    const own = tenth.map(({ _id, id_developer }) => ({
      ...pattern,
      _id: new UUID() as never,
      parent: _id,
      device: id_developer,
      ...(plural === 'mqttcredentials' && { username: id_developer }),
    }));
    await db.collection(plural).insertMany(own);
  }
}

async function counts(db: Db): Promise<number[]> {
  return Promise.all([...collections, ...beneathDevices].map((plural) => db.collection(plural).countDocuments()));
}

/** What stays when the tree of 2,000 is gone: that of 40. */
const rest = [1, 1, 1, 10, 40, 3, 3, 3, 3];

async function expectOnlyTheRest(service: RunningService, db: Db): Promise<void> {
  expect(await counts(db)).toEqual(rest);
  expect(await findOrphans((plural) => db.collection(plural) as never)).toEqual([]);
  expect((await service.send('GET', '/devices/?max=1')).body.total_documents).toBe(40);
  expect((await service.send('GET', '/projects/big@demo/')).status).toBe(404);
}

/** The moments at which something is killed: how many devices are left then. */
const moments: [string, (db: Db) => Promise<boolean>][] = [
  ['as soon as it is recorded', async (db) => (await db.collection('removals').countDocuments()) > 0],
  ['when the group is gone', async (db) => (await db.collection('groups').countDocuments()) === 1],
  ['when devices go', async (db) => (await db.collection('devices').countDocuments()) < 2040],
  ['when what is beneath them goes', async (db) => (await db.collection('deviceconfigs').countDocuments()) < 202],
];

describe('a removal of 2,000 devices that is interrupted', () => {
  it('by a kill -9 of the service is complete before the next start is ready', async () => {
    const env = { BOOTSTRAP_API_KEY: 'for-this-test-only' };
    let service = await sandbox.service(env);
    let interrupted = 0;
    await plant(service, sandbox.database(await sandbox.embeddedUri()), 'small', 40);
    for (const [, came] of moments) {
      const before = sandbox.database(await sandbox.embeddedUri());
      await plant(service, before, 'big', 2000);
      const answer = service.send('DELETE', '/projects/big@demo/').catch(() => undefined);
      await waitUntil(() => came(before), 10_000);
      service.kill('SIGKILL');
      await service.ended;
      if ((await answer) === undefined && (await counts(before)).join() !== rest.join()) interrupted++;
      service = await sandbox.service(env);
      await expectOnlyTheRest(service, sandbox.database(await sandbox.embeddedUri()));
    }
    // without these rounds the test would prove nothing
    expect(interrupted).toBeGreaterThanOrEqual(3);
  }, 120_000);

  it('by a kill -9 of the database is complete before the service is ready again', async () => {
    const service = await sandbox.service();
    const db = sandbox.database(await sandbox.embeddedUri());
    let interrupted = 0;
    await plant(service, db, 'small', 40);
    for (const [, came] of moments.slice(0, 2)) {
      await plant(service, db, 'big', 2000);
      const answer = service.send('DELETE', '/projects/big@demo/');
      await waitUntil(() => came(db), 10_000);
      const pid = await sandbox.embeddedPid();
      if ((await db.collection('devices').countDocuments()) > 40) interrupted++;
      process.kill(pid, 'SIGKILL');
      // the driver may have come through by trying again
      const { status, body } = await answer;
      if (status !== 200) expect([status, body.code]).toEqual([503, 5031]);
      await service.ready();
      await expectOnlyTheRest(service, db);
    }
    expect(interrupted).toBeGreaterThan(0);
  }, 120_000);
});
