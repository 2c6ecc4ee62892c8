import { describe, expect, it } from '@jest/globals';
import { migrate } from '../../../src/service/migrations.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { createFixtures, pathOf, upgradeContext } from '../../support/service.js';

const ctx = await useTestService();

const objects: [name: string, description: string | undefined][] = [
  ['Ölpumpe', 'Zweistufig'],
  ['oelpumpe', undefined],
  ['Crème Brûlée', 'a.b*c'],
  ['CREME', 'axbbc'],
  ['Σίσυφος', ''],
  ['Ventil', 'hinter der O\u0308lpumpe\nim Keller'],
  ['각도', '50 % [max] (x|y)\\d+^$'],
];
const byType = ['projects', 'services', 'groups', 'assets', 'models', 'devices'] as const;

const id_group = await ctx.fixtures.group({ name: 'parent' });
for (const [name, description] of objects) {
  const fields = { name, ...(description !== undefined && { description }) };
  await ctx.fixtures.model(fields);
  await ctx.fixtures.device({ ...fields, id_group });
  await ctx.fixtures.asset({ ...fields, id_group });
  await ctx.fixtures.project(fields);
  await ctx.fixtures.service({ ...fields, id_project: 'Ölpumpe@acme' });
  await ctx.fixtures.group({ ...fields, id_service: 'Ölpumpe@acme' });
}

const found = async (plural: string, q: string, more = '') => {
  const { status, body } = await ctx.api.get(
    `/${plural}/?q=${encodeURIComponent(q)}&fields=name&sort=created_at${more}`,
  );
  expect(status).toBe(200);
  const names = body.result.map(({ name }: { name: string }) => name);
  expect(body.total_documents).toBe(names.length);
  return names.filter((name: string) => name !== 'parent' && !/ [0-9a-f]{8}$/.test(name)).join(' | ');
};

describe.each(byType)('q on %s', (plural) => {
  it.each([
    ['olpumpe', 'Ölpumpe | Ventil'],
    ['ÖLPUMPE', 'Ölpumpe | Ventil'],
    ['elpumpe', 'oelpumpe'],
    ['brulee', 'Crème Brûlée'],
    ['crème', 'Crème Brûlée | CREME'],
    ['CREME@ACME', 'CREME'],
    ['zweiStufig', 'Ölpumpe'],
    ['pumpe\nim', 'Ventil'],
    ['σισυφοσ', 'Σίσυφος'],
    ['ΣΥΦΟΣ', 'Σίσυφος'],
    ['a.b*c', 'Crème Brûlée'],
    ['.*', ''],
    ['% [max] (x|y)\\d+^$', '각도'],
    ['가', '각도'],
    ['zweistufigoelpumpe', ''],
    ['\u0301', objects.map(([name]) => name).join(' | ')],
  ])('finds %j', async (q, expected) => {
    expect(await found(plural, q)).toBe(expected);
  });
});

it('combines with filters, other sorts, pages, children and exports', async () => {
  expect(await found('devices', 'creme', '&order=-1')).toBe('CREME | Crème Brûlée');
  expect(await found('devices', 'creme', '&name=CREME')).toBe('CREME');
  expect(await found('devices', 'creme', '&enabled=0')).toBe('');
  const { body } = await ctx.api.get('/devices/?q=pumpe&max=1&offset=1');
  expect([body.total_documents, body.result[0].name]).toEqual([3, 'oelpumpe']);
  expect((await ctx.api.get('/groups/parent@acme/devices/?q=pumpe&max=1')).body.total_documents).toBe(3);
  expect((await ctx.api.get('/devices/?q=pumpe&format=csv&fields=name')).text).toBe(
    'name\r\nVentil\r\noelpumpe\r\nÖlpumpe\r\n',
  );
  const first = (await ctx.api.get('/devices/?q=pumpe&max=2&after=0')).body;
  expect([first.total_documents, first.next]).toEqual([3, 'oelpumpe@acme']);
  expect((await ctx.api.get(`/devices/?q=pumpe&max=2&after=${first.next}`)).body).toMatchObject({
    total_documents: 3,
    result: [{ name: 'Ölpumpe' }],
  });
});

it('follows every change of name and description', async () => {
  const api = await ctx.service.client({ account: 'other' });
  const other = createFixtures(api);
  const path = pathOf('models', await other.model({ name: 'Äpfel' }));
  const matches = async (...texts: string[]) =>
    Promise.all(texts.map(async (q) => (await api.get(`/models/?q=${encodeURIComponent(q)}`)).body.total_documents));
  const texts = ['apfel', 'birne', 'rot', 'grun', '@other'];
  const steps: [change: object, expected: number[]][] = [
    [{ description: 'Rôt' }, [1, 0, 1, 0, 1]],
    [{ name: 'Birne' }, [1, 1, 1, 0, 1]],
    [{ description: 'Grün' }, [1, 1, 0, 1, 1]],
    [{ properties: { rot: 'rot' } }, [1, 1, 0, 1, 1]],
    [{ name: 'Rot', description: null }, [1, 0, 1, 0, 1]],
    [{ description: null }, [1, 0, 1, 0, 1]],
    [{ name: 'Quitte', description: '' }, [1, 0, 0, 0, 1]],
  ];
  for (const [change, expected] of steps) {
    expect(summarize(await api.put(path, change))).toBe('2005');
    expect([change, await matches(...texts)]).toEqual([change, expected]);
  }
  const changes = Array.from({ length: 20 }, (_, index) =>
    api.put(path, { description: `number ${index}`, properties: { index } }),
  );
  for (const reply of await Promise.all(changes)) expect(summarize(reply)).toBe('2005');
  const { description, properties, version } = (await api.get(path)).body;
  expect([description, version]).toEqual([`number ${properties.index}`, steps.length + 20]);
  expect(await matches(description, 'number')).toEqual([1, 1]);
  const stored = await ctx.service.db.collection('models').findOne({ account: 'other' });
  expect(stored?.search_text).toBe(`quitte\0apfel@other\0${description}`);
  expect(summarize(await api.delete(path))).toBe('2004');
  expect(await matches('apfel')).toEqual([0]);
});

it('finds what was imported, also before it had a search text', async () => {
  const api = await ctx.service.client({ account: 'moved' });
  const lines =
    '{"resource":"project","name":"Aprikose","id_customer":"c"}\n{"resource":"model","name":"Aprikosenkern"}';
  const reply = await api.post('/import/', lines, { 'Content-Type': 'application/x-ndjson' });
  expect(reply.text).toContain('"created":2');
  const matches = async () => (await api.get('/projects/?q=APRI')).body.total_documents;
  expect(await matches()).toBe(1);
  const { db } = ctx.service;
  await db.collection('projects').updateMany({ account: 'moved' }, { $unset: { search_text: 1 } });
  expect(await matches()).toBe(0);
  await db.collection<{ _id: string }>('migrations').deleteOne({ _id: 'search-text-of-imports' });
  await migrate(db, upgradeContext);
  expect(await matches()).toBe(1);
});

it('is never shown, and finds nothing of another account', async () => {
  const { text } = await ctx.api.get('/devices/');
  expect(text).not.toContain('search_text');
  const stranger = await ctx.service.client({ account: 'stranger' });
  expect((await stranger.get('/devices/?q=pumpe')).body).toEqual({ total_documents: 0, result: [] });
});

it.each([
  ['/devices/?q=', '4004 q'],
  [`/devices/?q=${'x'.repeat(101)}`, '4004 q'],
  ['/devices/?q=a%00b', '4004 q'],
  ['/devices/?q=a&q=b', '4004 q'],
  ['/streams/?q=a', '4004 q'],
  ['/apikeys/?q=a', '4004 q'],
  ['/devices/?search_text=a', '4004 search_text'],
  ['/devices/?sort=search_text', '4004 sort'],
  ['/devices/?fields=search_text', '4004 fields'],
])('answers %s with %s', async (path, expected) => {
  expect(summarize(await ctx.api.get(path))).toBe(expected);
});
