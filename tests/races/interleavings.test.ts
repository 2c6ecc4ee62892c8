import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Collection, Database } from '../../src/db/database.js';
import { AppError } from '../../src/errors.js';
import { finishRemovals, removeTree } from '../../src/repositories/cascade-delete.js';
import { createConfig } from '../../src/repositories/device-configs.js';
import { createCredentials, createTopic } from '../../src/repositories/mqtt-credentials.js';
import { createResource, updateResource } from '../../src/repositories/resources.js';
import { asset, device, group, model, project, service as serviceType } from '../../src/resources/index.js';
import { findOrphans } from '../support/orphans.js';
import { type Api, createFixtures, pathOf, startTestService, type TestService } from '../support/service.js';

/** The moments that the rounds of the other files hit by chance, brought about on purpose. */
let service: TestService;
let api: Api;
let fixtures: ReturnType<typeof createFixtures>;
const actor = { account: 'acme', user: 'alice' };

beforeAll(async () => {
  service = await startTestService();
  api = await service.client();
  fixtures = createFixtures(api);
});
afterAll(() => service.stop());

/** The database, with something that happens right before the `nth` time of `method` on `plural`. */
function before(
  plural: string,
  method: keyof Collection,
  act: () => Promise<unknown>,
  { db = service.db, nth = 1 } = {},
): Database {
  let calls = 0;
  const kept = new Map<string, unknown>();
  // a `find` is sent as a command
  const findsThrough = (commands: Collection['db']): Collection['db'] =>
    new Proxy(commands, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key);
        if (typeof value !== 'function') return value;
        return (...fixtures: unknown[]) => {
          if (key !== 'command' || ++calls !== nth) return value.apply(target, fixtures);
          return act().then(() => value.apply(target, fixtures));
        };
      },
    });
  return {
    ...db,
    once<Kept>(name: string, make: () => Kept): Kept {
      if (!kept.has(name)) kept.set(name, make());
      return kept.get(name) as Kept;
    },
    collection: (name) =>
      new Proxy(db.collection(name), {
        get(target, key) {
          const value: unknown = Reflect.get(target, key);
          if (name === plural && method === 'find' && key === 'db') return findsThrough(target.db);
          if (typeof value !== 'function') return value;
          if (name !== plural || key !== method) return value.bind(target);
          return (...fixtures: unknown[]) => {
            if (++calls !== nth) return value.apply(target, fixtures);
            return act().then(() => value.apply(target, fixtures));
          };
        },
      }),
  };
}

/** What the answer would be numbered, and its details. */
async function failureOf(work: Promise<unknown>): Promise<unknown> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof AppError ? [error.failure, { ...error.details }] : error;
}

const remove = (resource: { plural: string }, id: string) => removeTree(service.db, resource, 'acme', id);
const count = (plural: string) => service.db.collection(plural).countDocuments();
const expectNoOrphans = async () => expect(await findOrphans((plural) => service.db.collection(plural))).toEqual([]);
const epoch = () => service.now();

it.each([
  ['a service', serviceType, 'id_project', project, () => fixtures.project()],
  ['a group', group, 'id_service', serviceType, () => fixtures.service()],
  ['an asset', asset, 'id_group', group, () => fixtures.group()],
  ['a device of a group', device, 'id_group', group, () => fixtures.group()],
  ['a device of an asset', device, 'id_asset', asset, () => fixtures.asset()],
] as const)('withdraws %s whose parent goes while it is created', async (_what, type, field, above, parent) => {
  const id = await parent();
  const kept = await count(type.plural);
  const db = before(type.plural, 'insertOne', () => remove(above, id));
  const values = { name: 'late', type: 'gateway', [field]: id };
  expect(await failureOf(createResource(db, type, actor, values, epoch()))).toEqual([
    'invalid',
    { [field]: 'does not exist' },
  ]);
  expect(await count(type.plural)).toBe(kept);
});

it('removes in the end what a create that died after its insert has left beneath a removed parent', async () => {
  const id = await fixtures.group();
  const removing = before('devices', 'insertOne', () => remove(group, id));
  const dying = before('groups', 'find', () => Promise.reject(new Error('killed')), { db: removing, nth: 2 });
  const values = { name: 'left over', type: 'gateway', id_group: id };
  await expect(createResource(dying, device, actor, values, epoch())).rejects.toThrow('killed');
  expect((await api.get('/devices/?name=left%20over')).body.total_documents).toBe(1);
  await finishRemovals(service.db, Date.now() + 61_000);
  expect((await api.get('/devices/?name=left%20over')).body.total_documents).toBe(0);
});

it('withdraws a device whose model goes while it is created', async () => {
  const id_group = await fixtures.group();
  const id_model = await fixtures.model();
  const kept = await count('devices');
  const db = before('devices', 'insertOne', () => remove(model, id_model));
  const values = { name: 'late', type: 'gateway', id_group, id_model };
  expect(await failureOf(createResource(db, device, actor, values, epoch()))).toEqual([
    'invalid',
    { id_model: 'does not exist' },
  ]);
  expect(await count('devices')).toBe(kept);
});

const beneathDevice: [string, (db: Database, id: string) => Promise<unknown>][] = [
  ['deviceconfigs', (db, id) => createConfig(db, actor, id, { name: 'a', version: '1', file: 'eA==' }, epoch())],
  ['mqtttopics', (db, id) => createTopic(db, actor, id, 'a/b', epoch())],
  ['mqttcredentials', (db, id) => createCredentials(db, actor, id, { username: 'pump', hash: 'x' }, epoch())],
];

it.each(beneathDevice)('withdraws %s whose device goes while they are stored', async (plural, store) => {
  const id = await fixtures.device();
  const db = before(plural, 'insertOne', () => remove(device, id));
  expect(await failureOf(store(db, id))).toEqual(['notFound', {}]);
  expect(await count(plural)).toBe(0);
});

it.each(beneathDevice)(
  'hands no %s on to a device that takes the identifier of one that goes',
  async (plural, store) => {
    const [name, id_group] = [`heir of ${plural}`, await fixtures.group()];
    const id = await fixtures.device({ name, id_group });
    const db = before(plural, 'insertOne', async () => {
      await remove(device, id);
      expect(await fixtures.device({ name, id_group })).toBe(id);
    });
    expect(await failureOf(store(db, id))).toEqual(['notFound', {}]);
    expect(await count(plural)).toBe(0);
  },
);

it('takes along what is moved beneath something that goes meanwhile, with all beneath it', async () => {
  const id = await fixtures.asset();
  const beneath = await fixtures.device({ id_asset: id });
  const target = await fixtures.group();
  const db = before('assets', 'findOneAndUpdate', () => remove(group, target));
  expect(await failureOf(updateResource(db, asset, actor, id, { id_group: target }, undefined, epoch()))).toEqual([
    'notFound',
    {},
  ]);
  expect([(await api.get(pathOf('assets', id))).status, (await api.get(pathOf('devices', beneath))).status]).toEqual([
    404, 404,
  ]);
  await expectNoOrphans();
});

it('finds what is created beneath a group while it is being removed', async () => {
  const id = await fixtures.group();
  const db = before('groups', 'deleteMany', async () => {
    const id_asset = await fixtures.asset({ id_group: id });
    await fixtures.device({ id_asset });
    await fixtures.device({ id_group: id });
  });
  await removeTree(db, group, 'acme', id);
  expect((await api.get(`/assets/?id_group=${encodeURIComponent(id)}`)).body.total_documents).toBe(0);
  await expectNoOrphans();
});

it('leaves alone what is moved out of a group while that is being removed', async () => {
  const id_service = await fixtures.service();
  const [from, to] = [await fixtures.group({ id_service }), await fixtures.group({ id_service })];
  const id = await fixtures.asset({ id_group: from });
  const beneath = await fixtures.device({ id_asset: id });
  const db = before('assets', 'deleteMany', () => api.put(pathOf('assets', id), { id_group: to }));
  await removeTree(db, group, 'acme', from);
  expect((await api.get(pathOf('assets', id))).body.id_group).toBe(to);
  expect((await api.get(pathOf('devices', beneath))).status).toBe(200);
  await expectNoOrphans();
});

it('gives the next number to a device whose identifier another process takes meanwhile', async () => {
  const id_group = await fixtures.group();
  const values = { name: 'same', type: 'gateway', id_group };
  // what another process claims is not known to this one
  const db = { ...before('devices', 'insertOne', () => api.post('/devices/', values)), claimed: new Set<string>() };
  expect(await createResource(db, device, actor, { ...values }, epoch())).toBe('same-2@acme');
});

it('moves a device in one write although it changes meanwhile', async () => {
  const id = await fixtures.device();
  const db = before('devices', 'findOneAndUpdate', () => api.put(pathOf('devices', id), { description: 'meanwhile' }));
  await updateResource(db, device, actor, id, { lon: 1, lat: 2 }, undefined, epoch());
  expect((await api.get(pathOf('devices', id))).body).toMatchObject({
    lon: 1,
    lat: 2,
    description: 'meanwhile',
    version: 2,
  });
});

it('leaves a device that is given a model while that goes no mention of it', async () => {
  const id = await fixtures.device();
  const id_model = await fixtures.model({ properties: { range: 40 } });
  const db = before('devices', 'findOneAndUpdate', () => remove(model, id_model));
  await failureOf(updateResource(db, device, actor, id, { id_model }, undefined, epoch()));
  expect((await api.get(pathOf('devices', id))).body).not.toHaveProperty('id_model');
  await expectNoOrphans();
});
