import { beforeAll, describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import type { Api } from '../../support/service.js';

const ctx = await useTestService({
  // refused requests are logged as errors
  log: { info() {}, warn() {}, error() {} },
  // some hundred requests are received within it
  answer_limit_ms: 10_000,
});
const max_costly_per_account = 8;
const max_in_flight = 128;
const max_waiting = 200;
let other: Api;

beforeAll(async () => {
  await ctx.fixtures.group({ name: 'Hall' });
  other = await ctx.service.client({ account: 'globex' });
});

/** Holds all that an account may hold of the database. */
function holdShare(): () => void {
  const { costly } = ctx.service.store;
  const held = Array.from({ length: max_costly_per_account }, () => costly.take('acme'));
  return () => {
    for (const release of held) release();
  };
}

describe('beside as many costly operations as an account may have', () => {
  it('serves cheap requests of the account, lets costly ones wait, and serves others', async () => {
    const giveBack = holdShare();
    const list = ctx.api.get('/groups/');
    expect(summarize(await ctx.api.post('/models/', { name: 'M' }))).toBe('2001');
    expect((await ctx.api.get('/models/M@acme/')).status).toBe(200);
    expect((await other.get('/groups/')).status).toBe(200);
    expect(await Promise.race([list, 'waits'])).toBe('waits');
    giveBack();
    expect((await list).body.total_documents).toBe(1);
  });

  it('answers 5033 to costly ones of the account if its line is full, or if they have waited too long', async () => {
    const giveBack = holdShare();
    const requests = Array.from({ length: max_in_flight + max_waiting + 1 }, () => ctx.api.get('/groups/'));
    // the one that found the line full
    await Promise.race(requests);
    for (const path of [
      '/groups/',
      '/devices/?q=a',
      '/streams/live/',
      '/events/live/',
      '/groups/Hall@acme/series/?fields=a',
    ])
      expect([(await ctx.api.get(path)).body.code, path]).toEqual([5033, path]);
    expect((await ctx.api.delete('/groups/Hall@acme/')).body.code).toBe(5033);
    expect((await other.get('/groups/')).status).toBe(200);
    for (const { status, body, headers } of await Promise.all(requests))
      expect([status, body.code, headers['retry-after']]).toEqual([503, 5033, '1']);
    giveBack();
    expect((await ctx.api.get('/groups/')).body.total_documents).toBe(1);
    expect(ctx.service.store.costly.held).toBe(0);
  });

  it('answers 5033 also to a list that has waited too long between two of its batches', async () => {
    const { costly } = ctx.service.store;
    const device = await ctx.fixtures.device({ name: 'Pump' });
    const streams = Array.from({ length: 30 }, (_, at) => ({ data: { bar: 1 }, at: 1000 + at }));
    expect((await ctx.api.post(`/devices/${device}/streams/`, streams)).body.code).toBe(2001);
    const held = Array.from({ length: max_costly_per_account }, () => costly.take('acme'));
    const list = ctx.api.get(`/devices/${device}/streams/`);
    await waitUntil(() => costly.waiting === 1);
    // gets the slot of the list after its first batch
    const next = costly.acquire('acme');
    held.pop()?.();
    held.push(await next);
    const { status, body, headers } = await list;
    expect([status, body.code, headers['retry-after']]).toEqual([503, 5033, '1']);
    // the next batch is no longer requested
    await waitUntil(() => costly.waiting === 0);
    for (const release of held) release();
    expect(costly.held).toBe(0);
  });
});

it('counts every list of stored objects and every feed as costly', () => {
  const isListOrFeed = ({ result }: (typeof ctx.service.operations)[number]) =>
    result.kind === 'feed' || result.kind === 'list';
  const cheap = ctx.service.operations.filter((each) => isListOrFeed(each) && each.isCostly !== true);
  expect(cheap.map(({ operationId }) => operationId)).toEqual([
    'listDeviceTypes',
    'listSensors',
    'listTimeZones',
    'listLocales',
    'listStorageFiles',
  ]);
});
