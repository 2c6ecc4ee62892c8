import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Collection, Database } from '../../src/db/database.js';
import { AppError } from '../../src/errors.js';
import { finishRemovals, removeTree } from '../../src/repositories/cascade-delete.js';
import { createStore, type OperationContext } from '../../src/repositories/context.js';
import { createConfig } from '../../src/repositories/device-configs.js';
import { createCredentials, createTopic } from '../../src/repositories/mqtt-credentials.js';
import { createResource, updateResource } from '../../src/repositories/resources.js';
import { asset, device, group, model, project, service as serviceType } from '../../src/resources/index.js';
import { orphans } from '../support/orphans.js';
import { type Api, at, givenBy, startTestService, type TestService } from '../support/service.js';

/** The moments that the rounds of the other files hit by chance, brought about on purpose. */
let service: TestService;
let api: Api;
let given: ReturnType<typeof givenBy>;

/** The context of a request on another state of the process than the service's. */
const contextOn = (db: Database, store = createStore(db)): OperationContext => ({
  store,
  account: 'acme',
  user: 'alice',
  now: service.now(),
  request_id: randomUUID(),
});

beforeAll(async () => {
  service = await startTestService();
  api = await service.client();
  given = givenBy(api);
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
  // a `find` is sent as a command
  const findsThrough = (commands: Collection['db']): Collection['db'] =>
    new Proxy(commands, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key);
        if (typeof value !== 'function') return value;
        return (...given: unknown[]) => {
          if (key !== 'command' || ++calls !== nth) return value.apply(target, given);
          return act().then(() => value.apply(target, given));
        };
      },
    });
  return {
    ...db,
    collection: (name) =>
      new Proxy(db.collection(name), {
        get(target, key) {
          const value: unknown = Reflect.get(target, key);
          if (name === plural && method === 'find' && key === 'db') return findsThrough(target.db);
          if (typeof value !== 'function') return value;
          if (name !== plural || key !== method) return value.bind(target);
          return (...given: unknown[]) => {
            if (++calls !== nth) return value.apply(target, given);
            return act().then(() => value.apply(target, given));
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

const remove = (resource: { plural: string }, id: string) =>
  removeTree(contextOn(service.db, service.store), resource, id);
const count = (plural: string) => service.db.collection(plural).countDocuments();
const expectNoOrphans = async () => expect(await orphans((plural) => service.db.collection(plural))).toEqual([]);

it.each([
  ['a service', serviceType, 'id_project', project, () => given.project()],
  ['a group', group, 'id_service', serviceType, () => given.service()],
  ['an asset', asset, 'id_group', group, () => given.group()],
  ['a device of a group', device, 'id_group', group, () => given.group()],
  ['a device of an asset', device, 'id_asset', asset, () => given.asset()],
] as const)('withdraws %s whose parent goes while it is created', async (_what, type, field, above, parent) => {
  const id = await parent();
  const kept = await count(type.plural);
  const db = before(type.plural, 'insertOne', () => remove(above, id));
  const values = { name: 'late', type: 'gateway', [field]: id };
  expect(await failureOf(createResource(contextOn(db), type, values))).toEqual([
    'invalid',
    { [field]: 'does not exist' },
  ]);
  expect(await count(type.plural)).toBe(kept);
});

it('removes in the end what a create that died after its insert has left beneath a removed parent', async () => {
  const id = await given.group();
  const removing = before('devices', 'insertOne', () => remove(group, id));
  const dying = before('groups', 'find', () => Promise.reject(new Error('killed')), { db: removing, nth: 2 });
  const values = { name: 'left over', type: 'gateway', id_group: id };
  await expect(createResource(contextOn(dying), device, values)).rejects.toThrow('killed');
  expect((await api.get('/devices/?name=left%20over')).body.total_documents).toBe(1);
  await finishRemovals(service.store, Date.now() + 61_000);
  expect((await api.get('/devices/?name=left%20over')).body.total_documents).toBe(0);
});

it('withdraws a device whose model goes while it is created', async () => {
  const id_group = await given.group();
  const id_model = await given.model();
  const kept = await count('devices');
  const db = before('devices', 'insertOne', () => remove(model, id_model));
  const values = { name: 'late', type: 'gateway', id_group, id_model };
  expect(await failureOf(createResource(contextOn(db), device, values))).toEqual([
    'invalid',
    { id_model: 'does not exist' },
  ]);
  expect(await count('devices')).toBe(kept);
});

const beneathDevice: [string, (db: Database, id: string) => Promise<unknown>][] = [
  ['deviceconfigs', (db, id) => createConfig(contextOn(db), id, { name: 'a', version: '1', file: 'eA==' })],
  ['mqtttopics', (db, id) => createTopic(contextOn(db), id, 'a/b')],
  ['mqttcredentials', (db, id) => createCredentials(contextOn(db), id, { username: 'pump', hash: 'x' })],
];

it.each(beneathDevice)('withdraws %s whose device goes while they are stored', async (plural, store) => {
  const id = await given.device();
  const db = before(plural, 'insertOne', () => remove(device, id));
  expect(await failureOf(store(db, id))).toEqual(['notFound', {}]);
  expect(await count(plural)).toBe(0);
});

it.each(beneathDevice)(
  'hands no %s on to a device that takes the identifier of one that goes',
  async (plural, store) => {
    const [name, id_group] = [`heir of ${plural}`, await given.group()];
    const id = await given.device({ name, id_group });
    const db = before(plural, 'insertOne', async () => {
      await remove(device, id);
      expect(await given.device({ name, id_group })).toBe(id);
    });
    expect(await failureOf(store(db, id))).toEqual(['notFound', {}]);
    expect(await count(plural)).toBe(0);
  },
);

it('takes along what is moved beneath something that goes meanwhile, with all beneath it', async () => {
  const id = await given.asset();
  const beneath = await given.device({ id_asset: id });
  const target = await given.group();
  const db = before('assets', 'findOneAndUpdate', () => remove(group, target));
  expect(
    await failureOf(
      updateResource(contextOn(db), asset, id, { values: { id_group: target }, acceptedVersions: undefined }),
    ),
  ).toEqual(['notFound', {}]);
  expect([(await api.get(at('assets', id))).status, (await api.get(at('devices', beneath))).status]).toEqual([
    404, 404,
  ]);
  await expectNoOrphans();
});

it('finds what is created beneath a group while it is being removed', async () => {
  const id = await given.group();
  const db = before('groups', 'deleteMany', async () => {
    const id_asset = await given.asset({ id_group: id });
    await given.device({ id_asset });
    await given.device({ id_group: id });
  });
  await removeTree(contextOn(db), group, id);
  expect((await api.get(`/assets/?id_group=${encodeURIComponent(id)}`)).body.total_documents).toBe(0);
  await expectNoOrphans();
});

it('leaves alone what is moved out of a group while that is being removed', async () => {
  const id_service = await given.service();
  const [from, to] = [await given.group({ id_service }), await given.group({ id_service })];
  const id = await given.asset({ id_group: from });
  const beneath = await given.device({ id_asset: id });
  const db = before('assets', 'deleteMany', () => api.put(at('assets', id), { id_group: to }));
  await removeTree(contextOn(db), group, from);
  expect((await api.get(at('assets', id))).body.id_group).toBe(to);
  expect((await api.get(at('devices', beneath))).status).toBe(200);
  await expectNoOrphans();
});

it('gives the next number to a device whose identifier another process takes meanwhile', async () => {
  const id_group = await given.group();
  const values = { name: 'same', type: 'gateway', id_group };
  const db = before('devices', 'insertOne', () => api.post('/devices/', values));
  expect(await createResource(contextOn(db), device, { ...values })).toBe('same-2@acme');
});

it('moves a device in one write although it changes meanwhile', async () => {
  const id = await given.device();
  const db = before('devices', 'findOneAndUpdate', () => api.put(at('devices', id), { description: 'meanwhile' }));
  await updateResource(contextOn(db), device, id, { values: { lon: 1, lat: 2 }, acceptedVersions: undefined });
  expect((await api.get(at('devices', id))).body).toMatchObject({
    lon: 1,
    lat: 2,
    description: 'meanwhile',
    version: 2,
  });
});

it('leaves a device that is given a model while that goes no mention of it', async () => {
  const id = await given.device();
  const id_model = await given.model({ properties: { range: 40 } });
  const db = before('devices', 'findOneAndUpdate', () => remove(model, id_model));
  await failureOf(updateResource(contextOn(db), device, id, { values: { id_model }, acceptedVersions: undefined }));
  expect((await api.get(at('devices', id))).body).not.toHaveProperty('id_model');
  await expectNoOrphans();
});
