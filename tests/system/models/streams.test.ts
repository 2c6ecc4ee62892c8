import { afterAll, expect, it } from '@jest/globals';
import { createRandom } from '../../support/random.js';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';

/** A stream in the model; `n` is the order of creation. */
interface Stream {
  n: number;
  device: string;
  _t: string;
  protocol: string;
  at: number;
  owner: string;
  updater: string;
  created_at: number;
}

type Params = Record<string, string | number>;

const rounds = 8;
const reads = 90;
const removals = 40;
const refill_size = 40;
// binary order differs from alphabetical and from UTF-16 order
const protocols = ['http', 'lora', 'Zigbee', 'zigbee', 'é', '\uFFFD', '😀', 'a b&c=d'];
const sorts = ['device', 'at', '_t', 'protocol', 'owner', 'updater', 'created_at'] as const;

let stored: Stream[] = [];
let count = 0;

const service = await startTestService();
const apis = [await service.client({ username: 'alice' }), await service.client({ username: 'bob' })];
const fixtures = createFixtures(await service.client());
const id_group = await fixtures.group();
const devices = [await fixtures.device({ id_group, name: 'b' }), await fixtures.device({ id_group, name: 'a' })];
afterAll(() => service.stop());

/** Random choices, reproducible by seed. */
function createChoices(seed: number) {
  const next = createRandom(seed);
  const below = (bound: number) => Math.floor(next() * bound);
  return {
    below,
    chance: (share: number) => next() < share,
    pick<T>(from: readonly T[]): T {
      return from[below(from.length)] as T;
    },
  };
}
type Random = ReturnType<typeof createChoices>;

const times = Array.from({ length: 12 }, (_, index) => index * 2.5);

/** Posts `refill_size` streams in several requests, some with equal times. */
async function refill(random: Random): Promise<void> {
  for (let left = refill_size; left > 0; ) {
    const size = Math.min(left, 1 + random.below(15));
    const user = random.below(2);
    const owner = ['alice', 'bob'][user] ?? '';
    const created_at = service.now();
    const entries = Array.from({ length: size }, () => ({
      n: 0,
      device: random.pick(devices),
      _t: random.pick(['str', 'sta']),
      protocol: random.pick(protocols),
      at: random.pick(times),
      owner,
      updater: owner,
      created_at,
    }));
    for (const _t of ['str', 'sta']) {
      // each kind is posted by itself, which decides the order of creation
      const posted = entries.filter((entry) => entry._t === _t);
      if (posted.length === 0) continue;
      for (const entry of posted) entry.n = count++;
      const body = posted.map(({ n, device, protocol, at: time }) => ({ device, protocol, at: time, data: { n } }));
      const reply = await apis[user]?.post(_t === 'str' ? '/streams/' : '/status/', body);
      expect(reply?.body).toEqual({ response: 'OK' });
      stored.push(...posted);
    }
    left -= size;
    service.advance(random.below(3));
  }
}

/** Random parameters; some match nothing, some are invalid. */
function randomParams(random: Random, account: boolean): Params {
  const params: Params = {};
  const received = () => random.pick(stored)?.created_at ?? service.now();
  const measured = () => random.pick([...times, 3.25, 1e9]);
  const setWithChance = (share: number, param: string, value: () => string | number) => {
    if (random.chance(share)) params[param] = value();
  };
  setWithChance(0.3, '_t', () => random.pick(['str', 'sta']));
  setWithChance(0.3, 'protocol', () => random.pick([...protocols, 'none']));
  setWithChance(0.2, 'owner', () => random.pick(['alice', 'bob', 'carol']));
  setWithChance(0.1, 'updater', () => random.pick(['alice', 'bob']));
  setWithChance(0.1, 'at', measured);
  setWithChance(0.25, 'at_from', measured);
  setWithChance(0.25, 'at_to', measured);
  setWithChance(0.05, 'created_at', received);
  setWithChance(0.15, 'created_at_from', received);
  setWithChance(0.15, 'created_at_to', received);
  setWithChance(0.05, 'updated_at_from', received);
  setWithChance(0.4, 'max', () => 1 + random.below(12));
  setWithChance(0.5, 'sort', () => random.pick(sorts));
  setWithChance(0.5, 'order', () => random.pick([1, -1]));
  setWithChance(0.3, 'offset', () => random.below(10));
  if (account) setWithChance(0.5, 'device', () => random.pick([...devices, 'nobody@acme']));
  return params;
}

/** The streams that match, in order, or undefined if the parameters are invalid. */
function findExpected(streams: readonly Stream[], params: Params): Stream[] | undefined {
  for (const field of ['at', 'created_at', 'updated_at'])
    if (Number(params[`${field}_from`]) > Number(params[`${field}_to`])) return undefined;
  const tests = Object.entries(params).flatMap(([param, value]) => {
    const [, field = '', suffix] = /^(.*?)(_from|_to)?$/.exec(param) ?? [];
    if (['max', 'sort', 'order', 'offset'].includes(field)) return [];
    const name = (field === 'updated_at' ? 'created_at' : field) as keyof Stream;
    if (suffix === '_from') return [(stream: Stream) => stream[name] >= value];
    if (suffix === '_to') return [(stream: Stream) => stream[name] <= value];
    return [(stream: Stream) => stream[name] === value];
  });
  const key = (params.sort ?? 'device') as keyof Stream;
  const keys: (keyof Stream)[] = key === 'device' ? ['device', 'at', 'n'] : [key, 'n'];
  const direction = Number(params.order ?? 1);
  return streams
    .filter((stream) => tests.every((test) => test(stream)))
    .sort((a, b) => direction * (keys.map((name) => compare(a[name], b[name])).find((sign) => sign !== 0) ?? 0));
}

function compare(a: string | number, b: string | number): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b)));
}

function pageOf(found: readonly Stream[], { offset = 0, max = Number.POSITIVE_INFINITY }: Params): readonly Stream[] {
  return found.slice(Number(offset), Number(offset) + Number(max));
}

const queryOf = (params: Params) =>
  Object.entries(params)
    .map(([param, value]) => `${param}=${encodeURIComponent(value)}`)
    .join('&');

const numbersOf = (result: { data: { n: number } }[]) => result.map(({ data }) => data.n);

it(`answers ${rounds * (reads + removals)} random filters of GET and DELETE like a plain in-memory model`, async () => {
  const seed = Number(process.env.MODEL_SEED ?? Date.now() % 1_000_000);
  console.info(`MODEL_SEED=${seed}`);
  const random = createChoices(seed);
  const [api] = apis;
  if (api === undefined) throw new Error('no client');
  const tally = { listed: 0, removed: 0, empty: 0, refused: 0 };

  async function read(path: string, streams: readonly Stream[], params: Params): Promise<void> {
    const reply = await api?.get(`${path}?${queryOf(params)}`);
    const found = findExpected(streams, params);
    if (found === undefined) {
      tally.refused++;
      expect([params, reply?.body.code]).toEqual([params, 4004]);
      return;
    }
    const page = pageOf(found, params);
    tally[page.length === 0 ? 'empty' : 'listed']++;
    expect({ params, total: reply?.body.total_documents, page: numbersOf(reply?.body.result) }).toEqual({
      params,
      total: found.length,
      page: page.map(({ n }) => n),
    });
  }

  for (let round = 0; round < rounds; round++) {
    if (stored.length < 3 * refill_size) await refill(random);
    for (let done = 0; done < reads; done += 10) {
      await Promise.all(
        Array.from({ length: 10 }, () => {
          const device = random.pick([...devices, undefined]);
          const streams = device === undefined ? stored : stored.filter((stream) => stream.device === device);
          const path = device === undefined ? '/streams/' : pathOf('devices', device, 'streams');
          return read(path, streams, randomParams(random, device === undefined));
        }),
      );
    }
    for (let done = 0; done < removals; done++) {
      if (stored.length < refill_size / 2) await refill(random);
      const device = random.pick(devices);
      const params = randomParams(random, false);
      const entries = Object.entries(params);
      const split = random.pick([0, entries.length, random.below(entries.length + 1)]);
      const query = queryOf(Object.fromEntries(entries.slice(0, split)));
      const body = Object.fromEntries(
        entries.slice(split).map(([param, value]) => [param, random.chance(0.5) ? String(value) : value]),
      );
      const path = `${pathOf('devices', device, 'streams')}${query === '' ? '' : `?${query}`}`;
      const reply = await api.delete(path, split === entries.length ? undefined : body);
      const found = findExpected(
        stored.filter((stream) => stream.device === device),
        params,
      );
      if (found === undefined) tally.refused++;
      else tally[pageOf(found, params).length === 0 ? 'empty' : 'removed']++;
      expect([params, reply.body.code]).toEqual([params, found === undefined ? 4004 : 2004]);
      const removed = new Set(found === undefined ? [] : pageOf(found, params));
      stored = stored.filter((stream) => !removed.has(stream));
      const left = await api.get('/streams/?sort=created_at');
      expect({ params, left: numbersOf(left.body.result) }).toEqual({ params, left: stored.map(({ n }) => n) });
    }
  }
  console.info(JSON.stringify(tally));
  // the test proves nothing if the filters match nothing
  expect(tally.listed).toBeGreaterThan(rounds * reads * 0.3);
  expect(tally.removed).toBeGreaterThan(rounds * removals * 0.2);
});
