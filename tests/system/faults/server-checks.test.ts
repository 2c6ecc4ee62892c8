import { describe, expect, it } from '@jest/globals';
import { openDatabase } from '../../../src/db/open-database.js';
import { useDatabaseSandbox } from '../../support/database-sandbox.js';
import { type RunningService, waitUntil } from '../../support/process.js';

const ctx = useDatabaseSandbox('server-checks');

describe('a dropped index', () => {
  const isReady = async (service: RunningService) => (await service.send('GET', '/readyz')).status === 200;

  it.each([
    ['devices', 'account_1_id_developer_1'],
    ['mqtt_wills', 'instance_1'],
  ])('of %s is noticed and built again', async (plural, index) => {
    const service = await ctx.sandbox.service(ctx.env);
    await ctx.db.collection(plural).dropIndex(index);
    await waitUntil(() => service.err().includes('indexes are missing; building them again'));
    await waitUntil(() => ctx.db.collection(plural).indexExists(index));
    await waitUntil(() => isReady(service));
    expect(service.err()).toContain(`"${plural} ${index}"`);
  });

  it('that cannot be built again makes the instance unready', async () => {
    const service = await ctx.sandbox.service(ctx.env);
    await ctx.db.collection('devices').dropIndex('account_1_id_developer_1');
    const twin = { account: 'acme', id_developer: 'twin@acme' };
    await ctx.db.collection('devices').insertMany([{ ...twin }, { ...twin }]);
    await waitUntil(async () => !(await isReady(service)));
    await waitUntil(() => service.err().includes('"code":11000'));
    await ctx.db.collection('devices').deleteMany(twin);
    await waitUntil(() => isReady(service));
  });
});

it('an idle service renews its leases together, and lists no indexes', async () => {
  const service = await ctx.sandbox.service({ ...ctx.env, MQTT_PORT: '0' });
  await waitUntil(async () => (await service.send('GET', '/readyz')).status === 200);
  await ctx.db.createCollection('system.profile', { capped: true, size: 64 * 1024 * 1024 });
  await ctx.db.command({ profile: 2 });
  const profiled = ctx.db.collection('system.profile');
  const readChecks = () => profiled.find({ 'command.dbStats': 1 }, { sort: { ts: 1 } }).toArray();
  // a new database has got collections since the start, which the first one finds
  await waitUntil(async () => (await readChecks()).length === 3);
  await ctx.db.command({ profile: 0 });
  const [, first, last] = await readChecks();
  const listed = { 'command.listIndexes': { $exists: true }, ts: { $gt: first?.ts } };
  expect(await profiled.countDocuments(listed)).toBe(0);
  expect(await profiled.countDocuments({ 'command.findAndModify': 'held_leases' })).toBe(0);
  const others = { $nin: ['system.profile', 'held_leases'] };
  const commands = { ts: { $gt: first?.ts, $lt: last?.ts }, 'command.find': others, op: { $ne: 'update' } };
  expect(await profiled.countDocuments(commands)).toBeLessThan((25 * (last?.ts - first?.ts)) / 1000);
});

describe('a clock that differs from that of the database', () => {
  it.each([
    [-20_000, "the clock is behind the database's", true],
    [70_000, "the clock is ahead of the database's: status, alarms and expiry wait until it is right", false],
  ])('by %i ms is warned of', async (shift_ms, warning, isRight) => {
    const warnings: [object, string][] = [];
    const log = { info() {}, warn: (...line: [object, string]) => void warnings.push(line), error() {} };
    const wallClock = () => Date.now() + shift_ms;
    const shifted = openDatabase({ uri: ctx.env.MONGODB_URI, log, wallClock, maintenance: async () => undefined });
    await shifted.attempted;
    expect(warnings).toEqual([[{ offset_s: expect.closeTo(shift_ms / 1000, -1) }, warning]]);
    expect([shifted.isClockRight(), shifted.readState().clock_offset_ms]).toEqual([
      isRight,
      expect.closeTo(shift_ms, -4),
    ]);
    await shifted.close();
  });

  it('by more than 60 s leaves what has a deadline to other instances', async () => {
    const shift = 'const now = Date.now; Date.now = () => now() + 100_000';
    const NODE_OPTIONS = `--import data:text/javascript,${encodeURIComponent(shift)}`;
    const wrong = await ctx.sandbox.service({ ...ctx.env, NODE_OPTIONS });
    const offset = /^clock_offset_seconds (\S+)$/m.exec((await wrong.send('GET', '/metrics')).text)?.[1];
    expect(Number(offset)).toBeCloseTo(100, -1);
    const countLeases = (...names: string[]) =>
      ctx.db.collection<{ _id: string }>('held_leases').countDocuments({ _id: { $in: names } });
    const jobs = ['status-watch', 'alarm-watch', 'alarm-scans', 'command-expiry', 'retention', 'stream-retention'];
    // a sign of each job that works
    await waitUntil(async () => (await countLeases('event-log')) === 1);
    expect(await countLeases(...jobs)).toBe(0);
    await ctx.sandbox.service(ctx.env);
    await waitUntil(async () => (await countLeases(...jobs)) > 4);
  });
});

it('a maintenance that does not end does not hold up the end', async () => {
  const log = { info() {}, warn() {}, error() {} };
  let begin: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const maintenance = () => new Promise<void>(() => begin());
  const stuck = openDatabase({ uri: ctx.env.MONGODB_URI, log, maintenance });
  await begun;
  await stuck.close();
  expect(await stuck.isReady()).toBe(false);
});

it('refuses a MongoDB whose feature version is older than 6.0, with one line', async () => {
  const mongod = await ctx.sandbox.mongod();
  await mongod.start();
  const admin = ctx.sandbox.database(mongod.uri).client.db('admin');
  await admin.command({ setFeatureCompatibilityVersion: '5.0' });
  const started = await ctx.sandbox.start({ ...ctx.env, MONGODB_URI: mongod.uri });
  expect(await started.ended).toBe(1);
  expect(started.complaints()).toEqual([
    expect.stringMatching(/^the database is MongoDB [\d.]+ with featureCompatibilityVersion 5\.0; both must be 6\.0 /),
  ]);
});
