import { randomUUID } from 'node:crypto';
import { afterAll, expect, it } from '@jest/globals';
import { sendImport } from '../../support/import.js';
import { type Api, pathOf, startTestService, type TestService } from '../../support/service.js';

/** Streams that two instances store, and the last ones that both show (`src/objects/values/last-stream-cache.ts`). */
const services: TestService[] = [];
const apis: Api[] = [];
const names = Array.from({ length: 12 }, (_, number) => `d${String(number).padStart(2, '0')}`);
const rounds = 40;

interface Sent {
  at: number;
  n: number;
}

const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
uri.pathname = `/test-${randomUUID()}`;
for (let number = 0; number < 2; number++) {
  const service = await startTestService({ uri: uri.href });
  services.push(service);
  while (!(await service.db.isReady())) await new Promise((resolve) => setTimeout(resolve, 20));
  apis.push(await service.client());
}
const now = Math.min(...services.map((service) => service.now()));
const devices = names.map((name) => ({ resource: 'device', name, type: 't', id_group: 'G@acme' }));
const { totals } = await sendImport(apis[0] as Api, [
  { resource: 'project', name: 'P', id_customer: 'c' },
  { resource: 'service', name: 'S', id_project: 'P@acme' },
  { resource: 'group', name: 'G', id_service: 'S@acme' },
  ...devices,
]);
expect(totals.failed).toBe(0);
afterAll(async () => {
  for (const service of services) await service.stop();
});

/** Reproducible numbers from 0 to 1. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

function findLast(sent: readonly Sent[]): object {
  const [last] = sent.filter(({ at }) => at <= now).toSorted((stream, other) => other.at - stream.at);
  return last === undefined ? {} : { latest: { at: last.at, data: { n: last.n } } };
}

it('are those of the streams that either has stored and not deleted', async () => {
  const seed = 1 + Math.floor(Math.random() * 1_000_000);
  const random = createRandom(seed);
  const stored = new Map(names.map((name): [string, readonly Sent[]] => [name, []]));
  const anyApi = () => apis[Math.floor(random() * apis.length)] as Api;
  let n = 0;

  async function change(name: string): Promise<void> {
    const path = pathOf('devices', `${name}@acme`, 'streams');
    const sent = stored.get(name) ?? [];
    const choice = random();
    // the clocks of the instances stand still, so that of equal times either may count
    const at = now - 100 + Math.floor(random() * 6) + ++n / 1000 + (choice > 0.95 ? 10_000 : 0);
    if (choice < 0.3) return;
    if (choice < 0.5) {
      stored.set(
        name,
        sent.filter((each) => each.at < at),
      );
      const reply = await anyApi().delete(`${path}?at_from=${at}`);
      expect(reply.body.code).toBe(2004);
      return;
    }
    const stream = { at, n };
    stored.set(name, [...sent, stream]);
    const reply = await anyApi().post(path, { at, data: { n: stream.n } });
    expect(reply.body.code).toBe(2001);
  }

  const read = async (api: Api) => (await api.get('/devices/?fields=name,latest')).body.result;
  for (let round = 0; round < rounds; round++) {
    await Promise.all([...names.map(change), ...apis.flatMap((api) => [read(api), read(api), read(api)])]);
    const expected = names.map((name) => ({ name, ...findLast(stored.get(name) ?? []) }));
    for (const api of apis) expect({ seed, round, result: await read(api) }).toEqual({ seed, round, result: expected });
  }
});

it('are stored once by on_conflict=skip, whichever instances get them how often', async () => {
  const sent = Array.from({ length: 20 }, (_, n) => ({ at: now - 1000 + n, data: { n } }));
  for (let round = 0; round < rounds; round++) {
    const path = pathOf('devices', `${names[round % names.length]}@acme`, 'streams');
    await (apis[0] as Api).delete(path);
    const sending = [...apis, ...apis, ...apis].map((api) => api.post(`${path}?on_conflict=skip`, sent));
    const replies = await Promise.all(sending);
    const created = replies.reduce((sum, { body }) => sum + body.details.created, 0);
    const { body } = await (apis[1] as Api).get(`${path}?sort=at`);
    const times = body.result.map(({ at }: Sent) => at);
    expect({ round, created, times }).toEqual({ round, created: 20, times: sent.map(({ at }) => at) });
  }
});
