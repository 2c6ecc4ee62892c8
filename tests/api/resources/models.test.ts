import { describe, expect, it } from '@jest/globals';
import { waitFor } from '../../../scripts/support/service-process.js';
import { loadInheritedInPieces } from '../../../src/objects/tree/inherited.js';
import { device } from '../../../src/resources/index.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { describeResourceContract, propertiesRule } from '../../support/resource-contract.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();
const showDevice = async (id: string) => (await ctx.api.get(pathOf('devices', id))).body;
const propertiesOf = async (id: string) => (await showDevice(id)).properties;

describeResourceContract(ctx, {
  plural: 'models',
  label: 'model',
  required: async () => ({}),
  optional: { properties: { a: 1 } },
  rules: [propertiesRule],
});

it('provides default properties: keys that the device sets take precedence', async () => {
  const id_model = await ctx.fixtures.model({ properties: { volts: 12, colour: 'red', nested: { a: 1, b: 2 } } });
  const id = await ctx.fixtures.device({ id_model, properties: { colour: 'blue', nested: { a: 9 }, own: true } });
  const bare = await ctx.fixtures.device({ id_model });
  expect(await propertiesOf(id)).toEqual({ volts: 12, colour: 'blue', nested: { a: 9 }, own: true });
  expect(await propertiesOf(bare)).toEqual({ volts: 12, colour: 'red', nested: { a: 1, b: 2 } });
  const listed = (await ctx.api.get(`/devices/?id_model=${encodeURIComponent(id_model)}&sort=created_at`)).body.result;
  expect(listed).toEqual([await showDevice(id), await showDevice(bare)]);
});

it('holds what a list inherits in the share of its account, 8 MiB at a time', async () => {
  const { inherited, db } = ctx.service.store;
  const text = 'x'.repeat(900_000);
  for (let number = 0; number < 10; number++) {
    const id_model = await ctx.fixtures.model({ properties: { text, number } });
    await ctx.fixtures.device({ id_model, type: 'large' });
  }
  const large = { type: 'large' };
  const [first] = await db.collection('devices').find(large).toArray();
  const account = String(first?.account);
  const release = await inherited.acquire(account, { amount: 32 * 1024 * 1024 });
  const listing = ctx.api.get('/devices/?type=large&sort=created_at');
  await waitFor(
    async () => inherited.waiting,
    (waiting) => waiting === 1,
  );
  release();
  const { body } = await listing;
  const shown = body.result.map(({ properties }: { properties: { number: number; text: string } }) => properties);
  expect(shown).toEqual(Array.from({ length: 10 }, (_, number) => ({ text, number })));
  expect(inherited.held).toBe(0);
  const operation = { store: ctx.service.store, account, limit: undefined, user: '', now: 0, request_id: '' };
  const documents = (await db.collection('devices').find(large, { raw: true }).toArray()) as unknown as Uint8Array[];
  const pieces: [number, number, boolean][] = [];
  for await (const piece of loadInheritedInPieces(operation, device, documents))
    pieces.push([piece.documents.length, piece.inherited.size, inherited.heldBy(account) > 5 * 900_000]);
  expect(pieces).toEqual([
    [5, 5, true],
    [5, 5, true],
  ]);
  expect(inherited.held).toBe(0);
});

it('applies changed properties to its devices: same version, new entity tag', async () => {
  const id_model = await ctx.fixtures.model({ properties: { volts: 12, gone: 1, colour: 'red' } });
  const id = await ctx.fixtures.device({ id_model, properties: { colour: 'blue' } });
  const [before, tag] = [await showDevice(id), (await ctx.api.get(pathOf('devices', id))).headers.etag ?? ''];
  ctx.service.advance(5);
  expect(summarize(await ctx.api.put(pathOf('models', id_model), { properties: { volts: 24, added: [1] } }))).toBe(
    '2005',
  );
  expect(await showDevice(id)).toEqual({ ...before, properties: { volts: 24, added: [1], colour: 'blue' } });
  expect((await ctx.api.get(pathOf('devices', id), { 'If-None-Match': tag })).status).toBe(200);
  expect(summarize(await ctx.api.put(pathOf('models', id_model), { properties: null }))).toBe('2005');
  expect(await showDevice(id)).toEqual({ ...before, properties: { colour: 'blue' } });
});

it("keeps a key inherited when a PUT sends back the model's value", async () => {
  const id_model = await ctx.fixtures.model({ properties: { volts: 12, deep: { a: [1, { b: null }] } } });
  const id = await ctx.fixtures.device({ id_model, properties: { colour: 'blue' } });
  const shown = await showDevice(id);
  expect(summarize(await ctx.api.put(pathOf('devices', id), { ...shown, description: 'sent back' }))).toBe('2005');
  await ctx.api.put(pathOf('models', id_model), { properties: { volts: 24, deep: { a: 2 } } });
  expect(await propertiesOf(id)).toEqual({ volts: 24, deep: { a: 2 }, colour: 'blue' });
});

it('lets a device override a key and inherit it again by omitting it', async () => {
  const id_model = await ctx.fixtures.model({ properties: { volts: 12, amps: 1 } });
  const id = await ctx.fixtures.device({ id_model });
  await ctx.api.put(pathOf('devices', id), { properties: { volts: 5, amps: 1 } });
  await ctx.api.put(pathOf('models', id_model), { properties: { volts: 24, amps: 2 } });
  expect(await propertiesOf(id)).toEqual({ volts: 5, amps: 2 });
  // an overridden key stays overridden, even when the model takes the same value
  await ctx.api.put(pathOf('models', id_model), { properties: { volts: 5 } });
  await ctx.api.put(pathOf('devices', id), { properties: { volts: 5 } });
  await ctx.api.put(pathOf('models', id_model), { properties: { volts: 48 } });
  expect(await propertiesOf(id)).toEqual({ volts: 5 });
  await ctx.api.put(pathOf('devices', id), { properties: {} });
  expect(await propertiesOf(id)).toEqual({ volts: 48 });
});

it('lets a device change its model, also when PUT sends back the properties of the former model', async () => {
  const [first, second] = [
    await ctx.fixtures.model({ properties: { a: 1, b: 1 } }),
    await ctx.fixtures.model({ properties: { a: 2, c: 2 } }),
  ];
  const [plain, sent] = [
    await ctx.fixtures.device({ id_model: first, properties: { d: 0 } }),
    await ctx.fixtures.device({ id_model: first, properties: { d: 0 } }),
  ];
  await ctx.api.put(pathOf('devices', plain), { id_model: second });
  await ctx.api.put(pathOf('devices', sent), { ...(await showDevice(sent)), id_model: second });
  for (const id of [plain, sent])
    expect(await showDevice(id)).toMatchObject({ id_model: second, properties: { a: 2, c: 2, d: 0 }, version: 1 });
  for (const id of [plain, sent]) expect((await propertiesOf(id)).b).toBeUndefined();
});

it('removes inherited properties from a device that loses its model', async () => {
  const id_model = await ctx.fixtures.model({ properties: { a: 1 } });
  const id = await ctx.fixtures.device({ id_model, properties: { b: 2 } });
  expect(summarize(await ctx.api.put(pathOf('devices', id), { id_model: null }))).toBe('2005');
  expect([await propertiesOf(id), 'id_model' in (await showDevice(id))]).toEqual([{ b: 2 }, false]);
});

it('leaves properties that are sent to a device that loses its model', async () => {
  const id_model = await ctx.fixtures.model({ properties: { a: 1 } });
  const id = await ctx.fixtures.device({ id_model, properties: { b: 2 } });
  await ctx.api.put(pathOf('devices', id), { ...(await showDevice(id)), id_model: null });
  expect(await propertiesOf(id)).toEqual({ a: 1, b: 2 });
});

it('leaves its properties, but no id_model, on its devices when deleted', async () => {
  const hostileProperties = JSON.parse('{"__proto__":{"x":1},"$where":1,"a.b":2,"":3,"colour":"red"}');
  const id_model = await ctx.fixtures.model({ properties: hostileProperties });
  const [id, bare] = [
    await ctx.fixtures.device({ id_model, properties: { colour: 'blue' } }),
    await ctx.fixtures.device({ id_model }),
  ];
  const [before, bareBefore] = [await showDevice(id), await showDevice(bare)];
  expect(summarize(await ctx.api.delete(pathOf('models', id_model)))).toBe('2004');
  for (const [shown, previous] of [
    [await showDevice(id), before],
    [await showDevice(bare), bareBefore],
  ]) {
    const { id_model: _, ...rest } = previous;
    expect(shown).toEqual(rest);
    expect(Object.entries(shown.properties).sort()).toEqual(Object.entries(previous.properties).sort());
  }
  expect(await ctx.fixtures.model({ name: id_model.split('@')[0], properties: { later: 1 } })).toBe(id_model);
  expect((await propertiesOf(id)).later).toBeUndefined();
});

it('must exist in the account of a device that refers to it', async () => {
  const foreign = await ctx.service.client({ account: 'stranger' });
  await foreign.post('/models/', { name: 'foreign', properties: { secret: 1 } });
  const id = await ctx.fixtures.device();
  const id_group = (await showDevice(id)).id_group;
  for (const id_model of ['nobody@acme', 'foreign@stranger']) {
    const details = { id_model: 'does not exist' };
    expect((await ctx.api.post('/devices/', { name: 'd', type: 't', id_group, id_model })).body).toMatchObject({
      code: 4003,
      details,
    });
    expect((await ctx.api.put(pathOf('devices', id), { id_model })).body).toMatchObject({ code: 4003, details });
  }
  expect('id_model' in (await showDevice(id))).toBe(false);
});

describe('measures', () => {
  const measures = [
    { path: 'bar', name: 'Pressure', unit: 'bar', decimals: 1, type: 'number', min: 0, max: 10, filter: true },
    { path: '/a.b/0', filter: false },
  ];

  it('are shown as they were given, in every format', async () => {
    const id = await ctx.fixtures.model({ measures });
    expect((await ctx.api.get(pathOf('models', id))).body.measures).toEqual(measures);
    const csv = await ctx.api.get(`/models/?name=${id.split('@')[0]}&fields=measures&format=csv`);
    expect(csv.text).toContain('""path"":""bar""');
    const xml = await ctx.api.get(pathOf('models', id), { accept: 'application/xml' });
    expect(xml.text).toContain('<measures><item><path>bar</path><name>Pressure</name>');
    expect(summarize(await ctx.api.put(pathOf('models', id), { measures: null }))).toBe('2005');
    expect((await ctx.api.get(pathOf('models', id))).body).not.toHaveProperty('measures');
  });

  const path = (name: string) => ({ path: name });
  const many = (count: number, filter?: boolean) =>
    Array.from({ length: count }, (_, index) => ({ path: `p${index}`, ...(filter && { filter }) }));

  it.each([
    ['a text', 'bar', 'measures'],
    ['more than 50', many(51), 'measures'],
    ['more than 10 with filter', many(11, true), 'measures'],
    ['an entry that is no object', ['bar'], 'measures.0'],
    ['an entry without a path', [{ name: 'x' }], 'measures.0.path'],
    ['an empty path', [path('')], 'measures.0.path'],
    ['a reserved path', [path('at')], 'measures.0.path'],
    ['a malformed pointer', [path('/a~2')], 'measures.0.path'],
    ['a comma outside of a pointer', [path('a,b')], 'measures.0.path'],
    ['a path twice', [path('a'), path('a')], 'measures.1.path'],
    ['a path in both forms', [path('a.b'), path('x'), path('/a/b')], 'measures.2.path'],
    ['an unknown field', [{ path: 'a', label: 'x' }], 'measures.0.label'],
    ['another type', [{ path: 'a', type: 'integer' }], 'measures.0.type'],
    ['negative decimals', [{ path: 'a', decimals: -1 }], 'measures.0.decimals'],
    ['11 decimals', [{ path: 'a', decimals: 11 }], 'measures.0.decimals'],
    ['half a decimal', [{ path: 'a', decimals: 0.5 }], 'measures.0.decimals'],
    ['a text as min', [{ path: 'a', min: '0' }], 'measures.0.min'],
    ['min above max', [{ path: 'a', min: 2, max: 1 }], 'measures.0.min'],
    ['a text as filter', [{ path: 'a', filter: 'yes' }], 'measures.0.filter'],
  ])('refuse %s', async (_, value, field) => {
    expect(summarize(await ctx.api.post('/models/', { name: 'refused', measures: value }))).toBe(`4003 ${field}`);
    const id = await ctx.fixtures.model();
    expect(summarize(await ctx.api.put(pathOf('models', id), { measures: value }))).toBe(`4003 ${field}`);
    expect((await ctx.api.get(pathOf('models', id))).body).not.toHaveProperty('measures');
  });

  it('accept 50 entries, 0 and 10 decimals, and a pointer with a comma', async () => {
    const accepted = [{ path: '/a,b', decimals: 0 }, { path: '/at', decimals: 10 }, ...many(48)];
    expect(summarize(await ctx.api.post('/models/', { name: 'fifty', measures: accepted }))).toBe('2001');
  });

  it('have at most 30 different paths with filter in an account, whoever comes first', async () => {
    const api = await ctx.service.client({ account: 'thirty' });
    const filterable = (first: number, count: number) =>
      Array.from({ length: count }, (_, index) => ({ path: `k.p${first + index}`, filter: true }));
    const create = (name: string, value: unknown) => api.post('/models/', { name, measures: value });
    for (const [name, first] of [['A', 0] as const, ['B', 10] as const]) {
      expect(summarize(await create(name, filterable(first, 10)))).toBe('2001');
    }
    const replies = await Promise.all(Array.from({ length: 12 }, (_, at) => create(`C${at}`, filterable(20 + at, 1))));
    expect(replies.map(summarize).sort()).toEqual([...Array(10).fill('2001'), '4003 measures', '4003 measures']);
    const created = (await api.get('/models/?sort=created_at')).body.result;
    const paths = created.flatMap((shown: { measures: { path: string }[] }) =>
      shown.measures.map((entry) => entry.path),
    );
    expect(new Set(paths).size).toBe(30);
    // paths that are declared already, in another form too, and those without filter
    expect(summarize(await create('D', [{ path: '/k/p1', filter: true }, { path: 'other' }]))).toBe('2001');
    expect(summarize(await create('E', [{ path: 'other', filter: true }]))).toBe('4003 measures');
    expect(summarize(await api.patch('/models/?name=D&confirm=1', { measures: [{ path: 'x', filter: 1 }] }))).toBe(
      '4003 measures',
    );
    // one of 30 is exchanged for another, unless a second model has it
    const update = (name: string, value: unknown) => api.put(`/models/${name}@thirty/`, { measures: value });
    expect(summarize(await update('B', [...filterable(11, 9), ...filterable(41, 1)]))).toBe('2005');
    expect(summarize(await update('A', [...filterable(0, 1), ...filterable(2, 8), ...filterable(42, 1)]))).toBe(
      '4003 measures',
    );
    const exchanging = created.filter(({ name }: { name: string }) => name.startsWith('C'));
    const exchange = ({ name }: { name: string }, at: number) => update(name, filterable(50 + at, 1));
    expect((await Promise.all(exchanging.map(exchange))).map(summarize)).toEqual(Array(10).fill('2005'));
    expect(summarize(await create('E', [{ path: 'other', filter: true }]))).toBe('4003 measures');
    // a deleted model makes room at once, and several are exchanged together
    expect(summarize(await api.delete('/models/A@thirty/'))).toBe('2004');
    expect(summarize(await create('E', [{ path: 'other', filter: true }]))).toBe('2001');
    const all = '/models/?created_at_from=0';
    const { matched } = (await api.patch(all, { measures: filterable(70, 10) })).body.details;
    expect((await api.patch(`${all}&confirm=${matched}`, { measures: filterable(70, 10) })).body.code).toBe(2005);
    expect(summarize(await update('B', filterable(80, 10)))).toBe('2005');
    expect(await ctx.service.db.collection('measured_paths').countDocuments({ account: 'thirty' })).toBe(20);
  });
});
