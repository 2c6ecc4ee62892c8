import { beforeAll, describe, expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { waitUntil } from '../../support/process.js';
import type { Api } from '../../support/service.js';

/** Conditions on values that more devices meet than are looked up by their ids (reference/lists.md#paths). */
const ctx = useTestService({ eventLog: true });
let api: Api;

const fleet = 50_010;
const nameOf = (number: number) => `d${String(number).padStart(5, '0')}`;

/** Copies a device and its value: the device with the number n has the value n, of every tenth another type. */
async function copyDevices(): Promise<void> {
  const { db } = ctx.service;
  const devices = db.collection('devices');
  const values = db.collection('device_values');
  const device = await devices.findOne({ id_developer: 'first@plain' });
  const value = await values.findOne({ device: 'first@plain' });
  if (device === null || value === null) throw new Error('nothing is stored');
  for (let from = 0; from < fleet; from += 5000) {
    const numbers = Array.from({ length: Math.min(5000, fleet - from) }, (_, offset) => from + offset);
    const ids = numbers.map(() => db.newId());
    const copies = numbers.map((number, index) => {
      const id_developer = `${nameOf(number)}@plain`;
      const type = number % 10 === 0 ? 'tenth' : 'meter';
      return { ...device, _id: ids[index], name: nameOf(number), id_developer, search_text: id_developer, type };
    });
    await devices.insertMany(copies as never, { ordered: false });
    const sent = numbers.map((number, index) => {
      const _id = { parent: ids[index], path: value.path };
      return { ...value, _id, parent: ids[index], device: `${nameOf(number)}@plain`, value: number };
    });
    await values.insertMany(sent as never, { ordered: false });
  }
}

beforeAll(async () => {
  api = await ctx.service.client({ account: 'plain' });
  const { totals } = await sendImport(api, [
    { resource: 'project', name: 'North', id_customer: 'c' },
    { resource: 'service', name: 'Water', id_project: 'North@plain' },
    { resource: 'group', name: 'Hall', id_service: 'Water@plain' },
    { resource: 'group', name: 'Yard', id_service: 'Water@plain' },
    { resource: 'model', name: 'Gauge', measures: ['bar', 'level'].map((path) => ({ path, filter: true })) },
    { resource: 'device', name: 'first', type: 'meter', id_group: 'Hall@plain' },
    { resource: 'device', name: 'a-silent', type: 'meter', id_group: 'Yard@plain' },
    { resource: 'device', name: 'b-apart', type: 'meter', id_group: 'Yard@plain' },
  ]);
  expect(totals.failed).toBe(0);
  await waitUntil(async () => (await api.get('/devices/?latest.bar=0&latest.level=0')).status === 200);
  for (const [device, data] of [
    ['first@plain', { bar: -1 }],
    ['b-apart@plain', { bar: 7.5, level: 3 }],
  ] as const)
    expect((await api.post('/streams/', { device, data })).body).toEqual({ response: 'OK' });
  await copyDevices();
});

describe('a condition that many devices meet', () => {
  it.each([
    ['latest.bar_from=0&max=3', fleet + 1, 'b-apart d00000 d00001'],
    ['latest.bar_from=0&max=2&offset=1', fleet + 1, 'd00000 d00001'],
    ['latest.bar_from=0&max=2&order=-1', fleet + 1, 'd50009 d50008'],
    ['latest.bar_from=0&max=2&sort=created_at', fleet + 1, 'b-apart d00000'],
    ['latest.bar_from=0&max=2&offset=20000', fleet + 1, 'd19999 d20000'],
    ['latest.bar_from=7&max=3&sort=latest.bar', fleet - 6, 'd00007 b-apart d00008'],
    ['latest.bar_from=0&max=2&sort=latest.bar&order=-1', fleet + 1, 'd50009 d50008'],
    ['latest.bar_from=0&max=2&sort=latest.bar&order=-1&offset=50000', fleet + 1, 'd00009 d00008'],
    ['latest.bar_to=8&sort=latest.bar&order=-1&max=3', 11, 'd00008 b-apart d00007'],
    ['latest.bar_from=0&max=2&sort=latest.level&order=-1', fleet + 1, 'b-apart d50009'],
    ['latest.bar_from=0&type=tenth&max=2&offset=1', 5001, 'd00010 d00020'],
    ['latest.bar_from=0&type=tenth&sort=latest.bar&order=-1&max=2', 5001, 'd50000 d49990'],
    ['latest.bar_from=0&id_group=Yard@plain', 1, 'b-apart'],
    ['latest.bar_from=0&latest.level=3', 1, 'b-apart'],
    ['sort=latest.bar&max=3', fleet + 3, 'a-silent first d00000'],
    ['sort=latest.level&order=-1&max=2', fleet + 3, 'b-apart d50009'],
  ])('selects by ?%s', async (query, total, names) => {
    const { status, body } = await api.get(`/devices/?${query}&fields=name`);
    expect([status, body.total_documents]).toEqual([200, total]);
    expect(body.result.map(({ name }: { name: string }) => name).join(' ')).toBe(names);
  });

  it('is counted, and exported', async () => {
    expect((await api.get('/devices/counts/?by=type&latest.bar_from=0')).body).toEqual({
      total_documents: fleet + 1,
      result: [
        { type: 'meter', count: 45_010 },
        { type: 'tenth', count: 5001 },
      ],
    });
    const lines = (await api.get('/devices/?latest.bar_from=0&format=csv&fields=name')).text.split('\r\n');
    expect([lines.length, lines[1], lines.at(-2)]).toEqual([fleet + 3, 'b-apart', 'd50009']);
    const { body } = await api.delete('/devices/?latest.bar_from=0');
    expect(body.details).toEqual({ matched: fleet + 1 });
  });

  it('is that of the account of the key', async () => {
    const other = await ctx.service.client({ account: 'other' });
    expect((await other.get('/devices/?latest.bar_from=0')).status).toBe(400);
  });
});
