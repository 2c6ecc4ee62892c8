import { describe, expect, it } from '@jest/globals';
import { splitIntoBatches } from '../../../src/lib/batches.js';
import { useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { waitUntil } from '../../support/process.js';

/**
 * Conditions on values that many devices meet (reference/lists.md#paths). Of other conditions `type=tenth` leaves as few as are
 * selected, `type=meter` does not.
 */
const ctx = await useTestService({ eventLog: true, max_selected: 2000 });

const fleet = 5010;
const nameOf = (number: number) => `d${String(number).padStart(4, '0')}`;

/**
 * Copies a device and its values: the device with the number n has the value n, and 0, 1 or 2 as its phase. Every tenth has
 * another type, and every hundredth, from 1 on, a model whose phase is a text.
 */
async function copyDevices(): Promise<void> {
  const { db } = ctx.service;
  const devices = db.collection('devices');
  const values = db.collection('device_values');
  const device = await devices.findOne({ id_developer: 'first@plain' });
  const [bar, phase] = await values.find({ device: 'first@plain' }).sort({ value: 1 }).toArray();
  if (device === null || bar === undefined || phase === undefined) throw new Error('nothing is stored');
  const numbers = Array.from({ length: fleet }, (_, number) => number);
  const ids = numbers.map(() => db.newId());
  const copies = numbers.map((number) => {
    const id_developer = `${nameOf(number)}@plain`;
    const type = number % 10 === 0 ? 'tenth' : 'meter';
    const id_model = number % 100 === 1 ? 'Text@plain' : 'Gauge@plain';
    return {
      ...device,
      _id: ids[number],
      name: nameOf(number),
      id_developer,
      search_text: id_developer,
      type,
      id_model,
    };
  });
  for (const piece of splitIntoBatches(copies, 500)) await devices.insertMany(piece as never, { ordered: false });
  const states = db.collection('device_states');
  const state = await states.findOne({ device: 'first@plain' });
  const copiedStates = numbers.map((number) => {
    return { ...state, _id: db.newId(), parent: ids[number], device: `${nameOf(number)}@plain` };
  });
  for (const piece of splitIntoBatches(copiedStates, 500)) await states.insertMany(piece as never, { ordered: false });
  const copyValue = (copied: typeof bar, number: number, value: number) => {
    const _id = { parent: ids[number], path: copied.path };
    return { ...copied, _id, parent: ids[number], device: `${nameOf(number)}@plain`, value };
  };
  const sent = numbers.flatMap((number) => [copyValue(bar, number, number), copyValue(phase, number, number % 3)]);
  for (const piece of splitIntoBatches(sent, 500)) await values.insertMany(piece as never, { ordered: false });
}

const api = await ctx.service.client({ account: 'plain' });
const { totals } = await sendImport(api, [
  { resource: 'project', name: 'North', id_customer: 'c' },
  { resource: 'service', name: 'Water', id_project: 'North@plain' },
  { resource: 'group', name: 'Hall', id_service: 'Water@plain' },
  { resource: 'group', name: 'Yard', id_service: 'Water@plain' },
  { resource: 'model', name: 'Gauge', measures: ['bar', 'level', 'phase'].map((path) => ({ path, filter: true })) },
  { resource: 'model', name: 'Text', measures: [{ path: 'phase', type: 'text' }] },
  { resource: 'device', name: 'first', type: 'meter', id_group: 'Hall@plain' },
  { resource: 'device', name: 'a-silent', type: 'meter', id_group: 'Yard@plain' },
  { resource: 'device', name: 'b-apart', type: 'meter', id_group: 'Yard@plain' },
]);
expect(totals.failed).toBe(0);
await waitUntil(async () => (await api.get('/devices/?latest.bar=0&latest.level=0&latest.phase=0')).status === 200);
for (const [device, data] of [
  ['first@plain', { bar: -1, phase: 0 }],
  ['b-apart@plain', { bar: 7.5, level: 3 }],
] as const)
  expect((await api.post('/streams/', { device, data })).body).toEqual({ response: 'OK' });
await api.patch('/devices/first@plain/state/reported/', { configs: { 'boot.cfg': { version: '1' } } });
await copyDevices();

const namesAt = async (query: string) => {
  const { status, body } = await api.get(`/devices/?${query}&fields=name`);
  const names = body.result?.map(({ name }: { name: string }) => name).join(' ');
  return [status, body.total_documents, names];
};

describe('conditions that many devices meet', () => {
  it.each([
    ['latest.bar_from=3010&max=3', 2000, 'd3010 d3011 d3012'],
    ['latest.bar_from=3010&max=2&order=-1', 2000, 'd5009 d5008'],
    ['latest.bar_from=3010&max=2&sort=created_at', 2000, 'd3010 d3011'],
    ['latest.bar_from=3010&max=2&sort=status&order=-1', 2000, 'd5009 d5008'],
    ['latest.bar_from=3010&max=2&sort=latest.bar&order=-1&offset=1998', 2000, 'd3011 d3010'],
    ['latest.bar_from=3010&type=meter&max=2&offset=7&sort=latest.bar', 1800, 'd3018 d3019'],
    ['latest.bar_to=8&sort=latest.bar&order=-1&max=3', 11, 'd0008 b-apart d0007'],
    ['latest.bar_from=0&type=tenth&sort=latest.bar&order=-1&max=2', 501, 'd5000 d4990'],
    ['latest.bar_from=0&latest.phase_from=1&type=tenth&max=2', 334, 'd0010 d0020'],
    ['latest.bar_from=0&latest.level=3', 1, 'b-apart'],
    ['latest.phase_from=1&latest.bar_from=4000&sort=latest.phase&max=2', 667, 'd4000 d4003'],
    ['config=boot.cfg&latest.bar_to=1', 3, 'd0000 d0001 first'],
    ['sort=latest.bar&max=3', fleet + 3, 'a-silent first d0000'],
  ])('select by ?%s', async (query, total, names) => {
    expect(await namesAt(query)).toEqual([200, total, names]);
  });

  it.each([
    ['latest.bar_from=3009', 'latest.bar_from'],
    ['latest.bar_from=0&id_group=Hall@plain&sort=latest.bar', 'latest.bar_from'],
    ['latest.bar_from=0&config=boot.cfg&type=meter', 'config latest.bar_from'],
    ['filter=Many@plain', 'filter'],
  ])('have to be narrowed: ?%s', async (query, fields) => {
    expect((await api.post('/filters/', { name: 'Many', query: 'latest.bar_from=0' })).status).toBeLessThan(500);
    const fault = 'matches more than 2000 devices: narrow it, or add a filter that leaves fewer';
    const details = Object.fromEntries(fields.split(' ').map((field) => [field, fault]));
    const devices = `/devices/?${query}`;
    const filter = query.replace(/&sort.*/, '');
    for (const reply of [
      await api.get(devices),
      await api.get(`${devices}&format=csv`),
      await api.get(`/devices/counts/?by=type&${filter}`),
      await api.patch(`/devices/?${filter}`, { sensor: 's' }),
    ])
      expect([reply.body.code, reply.body.details]).toEqual([4004, details]);
  });

  it('are counted, exported, continued and used by saved filters', async () => {
    const query = 'latest.bar_from=3010&type=meter';
    expect((await api.get(`/devices/counts/?by=id_group,type&${query}`)).body).toEqual({
      total_documents: 1800,
      result: [{ id_group: 'Hall@plain', type: 'meter', count: 1800 }],
    });
    const lines = (await api.get(`/devices/?${query}&format=csv&fields=name`)).text.split('\r\n');
    expect([lines.length, lines[1], lines.at(-2)]).toEqual([1802, 'd3011', 'd5009']);
    expect(await namesAt(`${query}&max=2&after=d4999@plain`)).toEqual([200, 1800, 'd5001 d5002']);
    expect((await api.post('/filters/', { name: 'Meters', query })).body.code).toBe(2001);
    expect(await namesAt('filter=Meters@plain&max=1')).toEqual([200, 1800, 'd3011']);
    const series = await api.get('/devices/series/?filter=Meters@plain&fields=bar');
    expect(series.body.result).toEqual([]);
  });

  it('are changed, and left alone where they no longer match', async () => {
    const path = '/devices/?latest.bar_from=3010&config=boot.cfg&type=meter';
    expect((await api.patch(`${path}&confirm=1799`, { sensor: 'x' })).body.details).toEqual({ matched: 1800 });
    const right = await api.patch(`${path}&confirm=1800`, { description: 'changed' });
    expect([right.body.code, right.body.details]).toEqual([2005, { matched: 1800, changed: 1800 }]);
    const { db } = ctx.service;
    const changed = { description: 'changed', type: 'meter', name: /^d/, sensor: { $exists: false } };
    expect(await db.collection('devices').countDocuments(changed)).toBe(1800);
  });
});

describe('values of another type than the model declares', () => {
  it.each([
    ['sort=latest.phase&max=5', fleet + 3, 'a-silent b-apart d0001 d0101 d0201'],
    ['sort=latest.phase&max=2&offset=52', fleet + 3, 'd5001 first'],
    ['sort=latest.phase&order=-1&max=2&offset=5010', fleet + 3, 'd0001 b-apart'],
    ['sort=latest.phase&latest.bar_to=4&max=3', 6, 'd0001 first d0000'],
  ])('count as none in ?%s', async (query, total, names) => {
    expect(await namesAt(query)).toEqual([200, total, names]);
  });

  it('count as none where all devices have sent one', async () => {
    await api.delete('/devices/a-silent@plain/');
    await api.put('/models/Text@plain/', { measures: [{ path: '/bar', type: 'text' }] });
    expect(await namesAt('sort=latest.bar&max=3&offset=50')).toEqual([200, fleet + 2, 'd5001 first d0000']);
    expect(await namesAt('sort=latest.bar&max=2&order=-1&offset=5010')).toEqual([200, fleet + 2, 'd0101 d0001']);
    await api.put('/models/Text@plain/', { measures: [] });
  });
});

describe('more lists at once than an account has slots for costly operations', () => {
  it.each([
    '?latest.phase=1&type=tenth&max=20',
    '?latest.phase=1&type=meter&latest.bar_from=0&max=20',
    '?latest.phase=1&type=meter&sort=latest.bar&max=20',
    '?sort=latest.bar&fields=name,latest,alarms&max=20',
    'counts/?by=type&latest.phase=1&latest.bar_from=0',
  ])('are all answered: %s', async (query) => {
    const path = `/devices/${query}`;
    const alone = await api.get(path);
    expect(alone.status).toBe(200);
    const replies = await Promise.all(Array.from({ length: 20 }, () => api.get(path)));
    expect(new Set(replies.map(({ text }) => text))).toEqual(new Set([alone.text]));
  });
});
