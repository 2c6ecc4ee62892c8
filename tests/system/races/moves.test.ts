import { randomUUID } from 'node:crypto';
import { afterAll, expect, it, jest } from '@jest/globals';
import type { StoredDocument } from '../../../src/db/database.js';
import { findOrphans } from '../../support/orphans.js';
import { waitUntil } from '../../support/process.js';
import { startLate } from '../../support/race.js';
import { createRandom } from '../../support/random.js';
import {
  type Api,
  createFixtures,
  pathOf,
  type Reply,
  startTestService,
  type TestService,
} from '../../support/service.js';

/** Moves of subtrees on two instances of one database (reference/resources.md#update). */
const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
uri.pathname = `/test-${randomUUID()}`;
const instances: TestService[] = [];
const service = () => instances[0] as TestService;
const devices = () => service().db.collection('devices');
const below = (plural: string, field: string, id: string) => `/${plural}/?${field}=${encodeURIComponent(id)}`;
const total = async (path: string) => (await apis[1].get(path)).body.total_documents;

for (let instance = 0; instance < 2; instance++) {
  instances.push(await startTestService({ uri: uri.href }));
  await waitUntil(() => instances[instance]?.db.isReady() ?? false);
}
const apis = (await Promise.all(instances.map((instance) => instance.client()))) as [Api, Api];
const fixtures = createFixtures(apis[0]);
afterAll(async () => {
  for (const instance of instances.toReversed()) await instance.stop();
});

const expectNoOrphans = async () => expect(await findOrphans((plural) => service().db.collection(plural))).toEqual([]);

/** Inserts copies of a device beside it. */
async function copyDevice(id: string, count: number): Promise<void> {
  const pattern = (await devices().findOne({ id_developer: id })) as StoredDocument;
  const copies = Array.from({ length: count }, () => ({
    ...pattern,
    ...{ _id: service().db.newId(), id_developer: `${randomUUID()}@acme` },
  }));
  await devices().insertMany(copies);
}

it('takes everything below along, and shows it at one place only', async () => {
  const [from, to] = [await fixtures.project(), await fixtures.project()];
  const id_service = await fixtures.service({ id_project: from });
  const target = await fixtures.service({ id_project: to });
  const id_group = await fixtures.group({ id_service });
  const id_asset = await fixtures.asset({ id_group });
  await fixtures.device({ id_group });
  await copyDevice(await fixtures.device({ id_asset }), 4000);
  const totals = new Set<number>();
  let isMoving = true;
  const reading = (async () => {
    while (isMoving) {
      totals.add(await total(below('devices', 'id_group', id_group)));
    }
  })();
  const { body } = await apis[0].put(pathOf('groups', id_group), { id_service: target });
  isMoving = false;
  await reading;
  expect(body.details.id_service).toBe(target);
  expect([...totals]).toEqual([4002]);
  expect(
    await Promise.all(['devices', 'assets', 'groups'].map((plural) => total(below(plural, 'id_project', from)))),
  ).toEqual([0, 0, 0]);
  expect(
    await Promise.all(['devices', 'assets', 'groups'].map((plural) => total(below(plural, 'id_project', to)))),
  ).toEqual([4002, 1, 1]);
  await apis[1].put(pathOf('services', target), { id_project: from });
  expect(await total(below('devices', 'id_project', from))).toBe(4002);
  await expectNoOrphans();
  expect(await service().db.collection('moves').countDocuments()).toBe(0);
});

it('moves many objects together with everything below them', async () => {
  const [from, to] = [await fixtures.service(), await fixtures.service()];
  const groups = await Promise.all(Array.from({ length: 5 }, () => fixtures.group({ id_service: from })));
  for (const id_group of groups) await fixtures.device({ id_asset: await fixtures.asset({ id_group }) });
  const { body } = await apis[0].patch(`${below('groups', 'id_service', from)}&confirm=5`, { id_service: to });
  expect(body.details).toEqual({ matched: 5, changed: 5 });
  expect([await total(below('devices', 'id_service', from)), await total(below('devices', 'id_service', to))]).toEqual([
    0, 5,
  ]);
  expect(await service().db.collection('moves').countDocuments()).toBe(0);
  await expectNoOrphans();
});

it('takes along what arrives while the parent is moved twice', async () => {
  const [first, second, third] = [await fixtures.project(), await fixtures.project(), await fixtures.project()];
  const target = await fixtures.service({ id_project: first });
  const id_group = await fixtures.group();
  await fixtures.device({ id_group });
  const services = service().store.loader('services');
  const findNode = services.node;
  const move = (id_project: string) => apis[1].put(pathOf('services', target), { id_project });
  // the arrival looks at its parent again between two moves, and writes after both
  const lookAgain = jest.spyOn(services, 'node').mockImplementationOnce(async (_id) => {
    expect((await move(second)).body.code).toBe(2005);
    const seen = await findNode(_id);
    expect((await move(third)).body.code).toBe(2005);
    return seen;
  });
  expect((await apis[0].put(pathOf('groups', id_group), { id_service: target })).body.code).toBe(2005);
  expect(lookAgain).toHaveBeenCalled();
  lookAgain.mockRestore();
  await expectNoOrphans();
  expect(await total(below('devices', 'id_project', third))).toBe(1);
});

it('agrees with creates, moves and deletions at every level at the same time', async () => {
  const seed = Number(process.env.MOVES_SEED ?? Math.floor(Math.random() * 1e6));
  const random = createRandom(seed);
  const pick = <Item>(items: readonly Item[]): Item => items[Math.floor(random() * items.length)] as Item;
  const outcomes = new Map<string, number>();
  for (let round = 0; round < 12; round++) {
    const projects = [await fixtures.project(), await fixtures.project(), await fixtures.project()];
    const services = await Promise.all(projects.map((id_project) => fixtures.service({ id_project })));
    const groups = await Promise.all([...services, ...services].map((id_service) => fixtures.group({ id_service })));
    const assets = await Promise.all(groups.map((id_group) => fixtures.asset({ id_group })));
    for (const id_asset of assets) await fixtures.device({ id_asset });
    const requests: ((api: Api) => Promise<Reply>)[] = [
      ...Array.from({ length: 3 }, () => [pick(services), pick(projects)] as const).map(
        ([id, id_project]) =>
          (api: Api) =>
            api.put(pathOf('services', id), { id_project }),
      ),
      ...Array.from({ length: 4 }, () => [pick(groups), pick(services)] as const).map(
        ([id, id_service]) =>
          (api: Api) =>
            api.put(pathOf('groups', id), { id_service }),
      ),
      ...Array.from({ length: 4 }, () => [pick(assets), pick(groups)] as const).map(
        ([id, id_group]) =>
          (api: Api) =>
            api.put(pathOf('assets', id), { id_group }),
      ),
      ...Array.from({ length: 8 }, () => pick(assets)).map(
        (id_asset) => (api: Api) => api.post('/devices/', { name: 'd', type: 't', id_asset }),
      ),
      ...Array.from({ length: 4 }, () => pick(groups)).map(
        (id_group) => (api: Api) => api.post('/devices/', { name: 'd', type: 't', id_group }),
      ),
      (api) => api.delete(pathOf('services', services[0] as string)),
      (api) => api.delete(pathOf('groups', groups[1] as string)),
    ];
    const replies = await Promise.all(
      requests.map((send, index) => startLate(Math.floor(random() * 60), () => send(apis[index % 2] as Api))),
    );
    for (const { body } of replies) outcomes.set(body.code, (outcomes.get(body.code) ?? 0) + 1);
    expect([seed, round, await findOrphans((plural) => service().db.collection(plural))]).toEqual([seed, round, []]);
    expect(await service().db.collection('moves').countDocuments()).toBe(0);
  }
  // created, deleted, moved; and some that lost against a deletion
  expect([...outcomes.keys()].sort()).toEqual(expect.arrayContaining([2001, 2004, 2005]));
}, 300_000);
