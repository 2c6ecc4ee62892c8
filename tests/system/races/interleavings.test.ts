import { randomUUID } from 'node:crypto';
import { expect, it } from '@jest/globals';
import { createCommand, findOpenCommands } from '../../../src/commands/store.js';
import type { Collection, Database } from '../../../src/db/database.js';
import { buildMinId, type Id } from '../../../src/db/ids.js';
import { createConfig } from '../../../src/device-configs/store.js';
import { createCredentials, createTopic } from '../../../src/mqtt/store/credentials.js';
import { createStore, type OperationContext } from '../../../src/objects/context.js';
import { removeTree, replayCompleted } from '../../../src/objects/tree/cascade-delete.js';
import { createResource } from '../../../src/objects/write/create.js';
import { updateResource } from '../../../src/objects/write/update.js';
import { asset, device, group, model, project, service as serviceType } from '../../../src/resources/index.js';
import { useTestService } from '../../support/expect-status.js';
import { findOrphans } from '../../support/orphans.js';
import { pathOf } from '../../support/service.js';

/** Provokes the interleavings that the rounds of the other files hit only by chance. */
const ctx = await useTestService();

/** Creates the context of a request, with a fresh store as in another process unless one is passed. */
const contextOn = (db: Database, store = createStore(db)): OperationContext => ({
  store,
  account: 'acme',
  user: 'alice',
  now: ctx.service.now(),
  limit: undefined,
  request_id: randomUUID(),
});

/** Wraps the database so that `act` runs right before the `nth` call of `method` on the collection `plural`. */
function interleave(
  plural: string,
  method: keyof Collection,
  act: () => Promise<unknown>,
  { db = ctx.service.db, nth = 1 } = {},
): Database {
  let calls = 0;
  // lists send `find` as a command
  const findsThrough = (commands: Collection['db']): Collection['db'] =>
    new Proxy(commands, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          if (key !== 'command' || ++calls !== nth) return value.apply(target, args);
          return act().then(() => value.apply(target, args));
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
          return (...args: unknown[]) => {
            if (++calls !== nth) return value.apply(target, args);
            return act().then(() => value.apply(target, args));
          };
        },
      }),
  };
}

const remove = (resource: { plural: string }, id: string) =>
  removeTree(contextOn(ctx.service.db, ctx.service.store), resource, id);
const count = (plural: string) => ctx.service.db.collection(plural).countDocuments();
const expectNoOrphans = async () =>
  expect(await findOrphans((plural) => ctx.service.db.collection(plural))).toEqual([]);

it.each([
  ['a service', serviceType, 'id_project', project, () => ctx.fixtures.project()],
  ['a group', group, 'id_service', serviceType, () => ctx.fixtures.service()],
  ['an asset', asset, 'id_group', group, () => ctx.fixtures.group()],
  ['a device of a group', device, 'id_group', group, () => ctx.fixtures.group()],
  ['a device of an asset', device, 'id_asset', asset, () => ctx.fixtures.asset()],
] as const)(
  'creates %s and deletes it with its parent, which is deleted during creation',
  async (_what, type, field, parentType, createParent) => {
    const id = await createParent();
    const before = await count(type.plural);
    const db = interleave(type.plural, 'insertOne', () => remove(parentType, id));
    const values = { name: 'late', type: 'gateway', [field]: id };
    expect(await createResource(contextOn(db), type, values)).toBe('late@acme');
    expect(await count(type.plural)).toBe(before);
  },
);

it('maintenance removes an orphan that a create left when it crashed after its insert', async () => {
  const id = await ctx.fixtures.group();
  const removeOnInsert = interleave('devices', 'insertOne', () => remove(group, id));
  const failOnFind = interleave('groups', 'find', () => Promise.reject(new Error('killed')), {
    db: removeOnInsert,
    nth: 2,
  });
  const values = { name: 'left over', type: 'gateway', id_group: id };
  await expect(createResource(contextOn(failOnFind), device, values)).rejects.toThrow('killed');
  expect((await ctx.api.get('/devices/?name=left%20over')).body.total_documents).toBe(1);
  await replayCompleted(ctx.service.store, Date.now() + 61_000);
  expect((await ctx.api.get('/devices/?name=left%20over')).body.total_documents).toBe(0);
});

it('detaches a new device from its model, which is deleted during creation', async () => {
  const id_group = await ctx.fixtures.group();
  const id_model = await ctx.fixtures.model({ properties: { range: 40 } });
  const db = interleave('devices', 'insertOne', () => remove(model, id_model));
  const values = { name: 'detached', type: 'gateway', id_group, id_model };
  expect(await createResource(contextOn(db), device, values)).toBe('detached@acme');
  const { body } = await ctx.api.get(pathOf('devices', 'detached@acme'));
  expect(body).not.toHaveProperty('id_model');
  expect(body.properties).toEqual({ range: 40 });
});

const childrenOfDevice: [string, (db: Database, id: string) => Promise<unknown>][] = [
  ['deviceconfigs', (db, id) => createConfig(contextOn(db), id, { name: 'a', version: '1', file: 'eA==' })],
  ['mqtttopics', (db, id) => createTopic(contextOn(db), id, 'a/b')],
  ['mqttcredentials', (db, id) => createCredentials(contextOn(db), id, { username: 'pump', hash: 'x' })],
];

it.each(childrenOfDevice)(
  'deletes %s with their device, which is deleted during the insert',
  async (plural, create) => {
    const id = await ctx.fixtures.device();
    const db = interleave(plural, 'insertOne', () => remove(device, id));
    await create(db, id);
    expect(await count(plural)).toBe(0);
  },
);

it.each(childrenOfDevice)(
  'passes no %s on to a new device with the identifier of a deleted one',
  async (plural, create) => {
    const [name, id_group] = [`heir of ${plural}`, await ctx.fixtures.group()];
    const id = await ctx.fixtures.device({ name, id_group });
    const db = interleave(plural, 'insertOne', async () => {
      await remove(device, id);
      expect(await ctx.fixtures.device({ name, id_group })).toBe(id);
    });
    await create(db, id);
    expect(await count(plural)).toBe(0);
  },
);

it('deletes an asset, with its devices, that moves to a group being deleted', async () => {
  const id = await ctx.fixtures.asset();
  const childDevice = await ctx.fixtures.device({ id_asset: id });
  const target = await ctx.fixtures.group();
  const db = interleave('assets', 'findOneAndUpdate', () => remove(group, target));
  await updateResource(contextOn(db), asset, id, { values: { id_group: target }, acceptedVersions: undefined });
  expect([
    (await ctx.api.get(pathOf('assets', id))).status,
    (await ctx.api.get(pathOf('devices', childDevice))).status,
  ]).toEqual([404, 404]);
  await expectNoOrphans();
});

it('deletes children created while their group is deleted', async () => {
  const id = await ctx.fixtures.group();
  const db = interleave('groups', 'deleteMany', async () => {
    const id_asset = await ctx.fixtures.asset({ id_group: id });
    await ctx.fixtures.device({ id_asset });
    await ctx.fixtures.device({ id_group: id });
  });
  await removeTree(contextOn(db), group, id);
  expect((await ctx.api.get(`/assets/?id_group=${encodeURIComponent(id)}`)).body.total_documents).toBe(0);
  await expectNoOrphans();
});

it('keeps an asset that leaves its group while the group is deleted', async () => {
  const id_service = await ctx.fixtures.service();
  const [from, to] = [await ctx.fixtures.group({ id_service }), await ctx.fixtures.group({ id_service })];
  const id = await ctx.fixtures.asset({ id_group: from });
  const childDevice = await ctx.fixtures.device({ id_asset: id });
  const db = interleave('assets', 'deleteMany', () => ctx.api.put(pathOf('assets', id), { id_group: to }));
  await removeTree(contextOn(db), group, from);
  expect((await ctx.api.get(pathOf('assets', id))).body.id_group).toBe(to);
  expect((await ctx.api.get(pathOf('devices', childDevice))).status).toBe(200);
  await expectNoOrphans();
});

it('numbers a device again when another process takes its identifier first', async () => {
  const id_group = await ctx.fixtures.group();
  const values = { name: 'same', type: 'gateway', id_group };
  const db = interleave('devices', 'insertOne', () => ctx.api.post('/devices/', values));
  expect(await createResource(contextOn(db), device, { ...values })).toBe('same-2@acme');
});

it('retries a location update when the device changes between read and write', async () => {
  const id = await ctx.fixtures.device();
  const db = interleave('devices', 'findOneAndUpdate', () =>
    ctx.api.put(pathOf('devices', id), { description: 'meanwhile' }),
  );
  await updateResource(contextOn(db), device, id, { values: { lon: 1, lat: 2 }, acceptedVersions: undefined });
  expect((await ctx.api.get(pathOf('devices', id))).body).toMatchObject({
    lon: 1,
    lat: 2,
    description: 'meanwhile',
    version: 2,
  });
});

it('leaves no reference to a model that is deleted while a device takes it', async () => {
  const id = await ctx.fixtures.device();
  const id_model = await ctx.fixtures.model({ properties: { range: 40 } });
  const db = interleave('devices', 'findOneAndUpdate', () => remove(model, id_model));
  await updateResource(contextOn(db), device, id, { values: { id_model }, acceptedVersions: undefined });
  expect((await ctx.api.get(pathOf('devices', id))).body).not.toHaveProperty('id_model');
  await expectNoOrphans();
});

it('hands commands out in the order of their creation when the clock of a process is ahead', async () => {
  const id = await ctx.fixtures.device();
  const { db } = ctx.service;
  const values = (name: string) => ({ name, expires_in: 600 });
  const ahead = { ...db, newId: () => buildMinId(Date.now() + 60_000) };
  await createCommand(contextOn(ahead), id, values('first'));
  await createCommand(contextOn(db), id, values('second'));
  const query = `id_developer=${encodeURIComponent(id)}&confirm=1`;
  expect((await ctx.api.post(`/devices/commands/?${query}`, values('third'))).body.code).toBe(2001);
  await createCommand(contextOn(db), id, values('fourth'));
  const stored = await db.collection('devices').findOne({ id_developer: id });
  const open = await findOpenCommands(db, stored?._id as Id, ctx.service.now());
  expect(open.map(({ json }) => JSON.parse(json).name)).toEqual(['first', 'second', 'third', 'fourth']);
});
