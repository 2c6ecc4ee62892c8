import { expect, it } from '@jest/globals';
import { ownService, summarize } from '../../support/expect-status.js';
import { describeResourceContract, propertiesRule } from '../../support/resource-contract.js';
import { at } from '../../support/service.js';

const own = ownService();
const device = async (id: string) => (await own.api.get(at('devices', id))).body;
const properties = async (id: string) => (await device(id)).properties;

it('creates and shows a model; enabled may be left out', async () => {
  const reply = await own.api.post('/models/', { name: 'X1', description: 'the first', properties: { volts: 12 } });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'model persisted', details: {} }]);
  expect(reply.headers.location).toBe('/models/X1%40acme/');
  expect((await own.api.get('/models/X1@acme/')).body).toEqual({
    id_developer: 'X1@acme',
    name: 'X1',
    description: 'the first',
    properties: { volts: 12 },
    enabled: true,
    owner: 'alice',
    updater: 'alice',
    created_at: own.service.now(),
    updated_at: own.service.now(),
    version: 0,
  });
});

describeResourceContract(own, {
  plural: 'models',
  label: 'model',
  required: async () => ({}),
  optional: { properties: { a: 1 } },
  rules: [propertiesRule],
});

it('gives its devices its properties, where they have not set the key themselves', async () => {
  const id_model = await own.given.model({ properties: { volts: 12, colour: 'red', nested: { a: 1, b: 2 } } });
  const id = await own.given.device({ id_model, properties: { colour: 'blue', nested: { a: 9 }, own: true } });
  const bare = await own.given.device({ id_model });
  expect(await properties(id)).toEqual({ volts: 12, colour: 'blue', nested: { a: 9 }, own: true });
  expect(await properties(bare)).toEqual({ volts: 12, colour: 'red', nested: { a: 1, b: 2 } });
  const listed = (await own.api.get(`/devices/?id_model=${encodeURIComponent(id_model)}&sort=created_at`)).body.result;
  expect(listed).toEqual([await device(id), await device(bare)]);
});

it('reaches its devices with a change, without a new version of them, but with a new entity tag', async () => {
  const id_model = await own.given.model({ properties: { volts: 12, gone: 1, colour: 'red' } });
  const id = await own.given.device({ id_model, properties: { colour: 'blue' } });
  const [before, tag] = [await device(id), (await own.api.get(at('devices', id))).headers.etag ?? ''];
  own.service.advance(5);
  expect(summarize(await own.api.put(at('models', id_model), { properties: { volts: 24, added: [1] } }))).toBe('2005');
  expect(await device(id)).toEqual({ ...before, properties: { volts: 24, added: [1], colour: 'blue' } });
  expect((await own.api.get(at('devices', id), { 'If-None-Match': tag })).status).toBe(200);
  expect(summarize(await own.api.put(at('models', id_model), { properties: null }))).toBe('2005');
  expect(await device(id)).toEqual({ ...before, properties: { colour: 'blue' } });
});

it("keeps a key the model's that a device sends back with the model's value", async () => {
  const id_model = await own.given.model({ properties: { volts: 12, deep: { a: [1, { b: null }] } } });
  const id = await own.given.device({ id_model, properties: { colour: 'blue' } });
  const given = await device(id);
  expect(summarize(await own.api.put(at('devices', id), { ...given, description: 'sent back' }))).toBe('2005');
  await own.api.put(at('models', id_model), { properties: { volts: 24, deep: { a: 2 } } });
  expect(await properties(id)).toEqual({ volts: 24, deep: { a: 2 }, colour: 'blue' });
});

it("lets a device set a key of the model's, and give it back by leaving it out", async () => {
  const id_model = await own.given.model({ properties: { volts: 12, amps: 1 } });
  const id = await own.given.device({ id_model });
  await own.api.put(at('devices', id), { properties: { volts: 5, amps: 1 } });
  await own.api.put(at('models', id_model), { properties: { volts: 24, amps: 2 } });
  expect(await properties(id)).toEqual({ volts: 5, amps: 2 });
  // once set it stays the device's, also where the model comes to say the same
  await own.api.put(at('models', id_model), { properties: { volts: 5 } });
  await own.api.put(at('devices', id), { properties: { volts: 5 } });
  await own.api.put(at('models', id_model), { properties: { volts: 48 } });
  expect(await properties(id)).toEqual({ volts: 5 });
  await own.api.put(at('devices', id), { properties: {} });
  expect(await properties(id)).toEqual({ volts: 48 });
});

it('hands a device over to another model, also with the properties of the first sent back', async () => {
  const [first, second] = [
    await own.given.model({ properties: { a: 1, b: 1 } }),
    await own.given.model({ properties: { a: 2, c: 2 } }),
  ];
  const [plain, sent] = [
    await own.given.device({ id_model: first, properties: { d: 0 } }),
    await own.given.device({ id_model: first, properties: { d: 0 } }),
  ];
  await own.api.put(at('devices', plain), { id_model: second });
  await own.api.put(at('devices', sent), { ...(await device(sent)), id_model: second });
  for (const id of [plain, sent])
    expect(await device(id)).toMatchObject({ id_model: second, properties: { a: 2, c: 2, d: 0 }, version: 1 });
  for (const id of [plain, sent]) expect((await properties(id)).b).toBeUndefined();
});

it('takes its properties away from a device that leaves it', async () => {
  const id_model = await own.given.model({ properties: { a: 1 } });
  const id = await own.given.device({ id_model, properties: { b: 2 } });
  expect(summarize(await own.api.put(at('devices', id), { id_model: null }))).toBe('2005');
  expect([await properties(id), 'id_model' in (await device(id))]).toEqual([{ b: 2 }, false]);
});

it('leaves the devices the properties they have when it is deleted, and no id_model', async () => {
  const nasty = JSON.parse('{"__proto__":{"x":1},"$where":1,"a.b":2,"":3,"colour":"red"}');
  const id_model = await own.given.model({ properties: nasty });
  const [id, bare] = [
    await own.given.device({ id_model, properties: { colour: 'blue' } }),
    await own.given.device({ id_model }),
  ];
  const [before, bareBefore] = [await device(id), await device(bare)];
  expect(summarize(await own.api.delete(at('models', id_model)))).toBe('2004');
  for (const [shown, was] of [
    [await device(id), before],
    [await device(bare), bareBefore],
  ]) {
    const { id_model: _, ...rest } = was;
    expect(shown).toEqual(rest);
    expect(Object.entries(shown.properties).sort()).toEqual(Object.entries(was.properties).sort());
  }
  expect(await own.given.model({ name: id_model.split('@')[0], properties: { later: 1 } })).toBe(id_model);
  expect((await properties(id)).later).toBeUndefined();
});

it('must exist in the account for a device to name it', async () => {
  const foreign = await own.service.client({ account: 'stranger' });
  await foreign.post('/models/', { name: 'foreign', properties: { secret: 1 } });
  const id = await own.given.device();
  const id_group = (await device(id)).id_group;
  for (const id_model of ['nobody@acme', 'foreign@stranger']) {
    const details = { id_model: 'does not exist' };
    expect((await own.api.post('/devices/', { name: 'd', type: 't', id_group, id_model })).body).toMatchObject({
      code: 4003,
      details,
    });
    expect((await own.api.put(at('devices', id), { id_model })).body).toMatchObject({ code: 4003, details });
  }
  expect('id_model' in (await device(id))).toBe(false);
});
