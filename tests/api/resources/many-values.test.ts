import { beforeAll, describe, expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { waitUntil } from '../../support/process.js';
import type { Api } from '../../support/service.js';

/**
 * Conditions on values that more devices meet than are looked up by their ids (reference/lists.md#paths). Of other conditions
 * `type=tenth` leaves as few as are looked up, `type=meter` does not.
 */
const ctx = useTestService({
  eventLog: true,
  selectionLimits: { max_looked_up: 2000, max_compared: 500, max_walked: 1000 },
});
let api: Api;

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
  await devices.insertMany(copies as never, { ordered: false });
  const copyValue = (copied: typeof bar, number: number, value: number) => {
    const _id = { parent: ids[number], path: copied.path };
    return { ...copied, _id, parent: ids[number], device: `${nameOf(number)}@plain`, value };
  };
  const sent = numbers.flatMap((number) => [copyValue(bar, number, number), copyValue(phase, number, number % 3)]);
  await values.insertMany(sent as never, { ordered: false });
}

beforeAll(async () => {
  api = await ctx.service.client({ account: 'plain' });
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
  await copyDevices();
});

describe('a condition that many devices meet', () => {
  it.each([
    ['latest.bar_from=0&max=3', fleet + 1, 'b-apart d0000 d0001'],
    ['latest.bar_from=0&max=2&offset=1', fleet + 1, 'd0000 d0001'],
    ['latest.bar_from=0&max=2&order=-1', fleet + 1, 'd5009 d5008'],
    ['latest.bar_from=0&max=2&sort=created_at', fleet + 1, 'b-apart d0000'],
    ['latest.bar_from=0&max=2&offset=2000', fleet + 1, 'd1999 d2000'],
    ['latest.bar_from=7&max=3&sort=latest.bar', fleet - 6, 'd0007 b-apart d0008'],
    ['latest.bar_from=0&max=2&sort=latest.bar&order=-1', fleet + 1, 'd5009 d5008'],
    ['latest.bar_from=0&max=2&sort=latest.bar&order=-1&offset=5000', fleet + 1, 'd0009 d0008'],
    ['latest.bar_to=8&sort=latest.bar&order=-1&max=3', 11, 'd0008 b-apart d0007'],
    ['latest.bar_from=0&max=2&sort=latest.level&order=-1', fleet + 1, 'b-apart d5009'],
    ['latest.bar_from=0&type=tenth&max=2&offset=1', 501, 'd0010 d0020'],
    ['latest.bar_from=0&type=tenth&sort=latest.bar&order=-1&max=2', 501, 'd5000 d4990'],
    ['latest.bar_from=0&id_group=Yard@plain', 1, 'b-apart'],
    ['latest.bar_from=0&id_group=Hall@plain&max=2', fleet, 'd0000 d0001'],
    ['latest.bar_from=0&type=meter&max=3', 4510, 'b-apart d0001 d0002'],
    ['latest.bar_from=0&type=meter&max=2&offset=4000', 4510, 'd4444 d4445'],
    ['latest.bar_from=0&type=meter&max=2&order=-1', 4510, 'd5009 d5008'],
    ['latest.bar_from=0&type=meter&max=2&sort=created_at', 4510, 'b-apart d0001'],
    ['latest.bar_from=0&type=meter&max=2&sort=status&order=-1', 4510, 'd5009 d5008'],
    ['latest.bar_from=0&type=meter&max=2&offset=7&sort=latest.bar', 4510, 'b-apart d0008'],
    ['latest.bar_from=0&type=meter&max=2&sort=latest.level&order=-1', 4510, 'b-apart d5009'],
    ['latest.bar_from=0&latest.phase_from=1&max=3', 3306, 'd0002 d0004 d0005'],
    ['latest.bar_from=0&latest.phase_from=1&type=meter&max=2&order=-1', 2972, 'd5009 d5008'],
    ['latest.phase_from=1&sort=latest.phase&max=2', 3306, 'd0004 d0007'],
    ['latest.phase_from=1&sort=latest.phase&max=2&offset=1', 3306, 'd0007 d0010'],
    ['latest.bar_from=0&latest.level=3', 1, 'b-apart'],
    ['sort=latest.bar&max=3', fleet + 3, 'a-silent first d0000'],
    ['sort=latest.level&order=-1&max=2', fleet + 3, 'b-apart d5009'],
  ])('selects by ?%s', async (query, total, names) => {
    const { status, body } = await api.get(`/devices/?${query}&fields=name`);
    expect([status, body.total_documents]).toEqual([200, total]);
    expect(body.result.map(({ name }: { name: string }) => name).join(' ')).toBe(names);
  });

  it('is counted, and exported', async () => {
    expect((await api.get('/devices/counts/?by=type&latest.bar_from=0')).body).toEqual({
      total_documents: fleet + 1,
      result: [
        { type: 'meter', count: 4510 },
        { type: 'tenth', count: 501 },
      ],
    });
    const lines = (await api.get('/devices/?latest.bar_from=0&format=csv&fields=name')).text.split('\r\n');
    expect([lines.length, lines[1], lines.at(-2)]).toEqual([fleet + 3, 'b-apart', 'd5009']);
    const { body } = await api.delete('/devices/?latest.bar_from=0');
    expect(body.details).toEqual({ matched: fleet + 1 });
  });

  it('is counted, exported, continued and used by saved filters beside others', async () => {
    const query = 'latest.bar_from=0&type=meter';
    expect((await api.get(`/devices/counts/?by=id_group,type&${query}`)).body).toEqual({
      total_documents: 4510,
      result: [
        { id_group: 'Hall@plain', type: 'meter', count: 4509 },
        { id_group: 'Yard@plain', type: 'meter', count: 1 },
      ],
    });
    expect((await api.get(`/devices/counts/?by=id_asset&max=1&${query}`)).body).toEqual({
      total_documents: 4510,
      result: [{ id_asset: null, count: 4510 }],
    });
    for (const max of ['', '&max=2100']) {
      const lines = (await api.get(`/devices/?${query}&format=csv&fields=name${max}`)).text.split('\r\n');
      expect([lines.length, lines[1], lines.at(-2)]).toEqual(
        max ? [2102, 'b-apart', 'd2332'] : [4512, 'b-apart', 'd5009'],
      );
    }
    const names: string[] = [];
    for (let after: string | undefined = '0'; after !== undefined; ) {
      const { body } = await api.get(`/devices/?${query}&fields=name&max=1000&after=${after}`);
      expect(body.total_documents).toBe(4510);
      names.push(...body.result.map(({ name }: { name: string }) => name));
      after = body.next;
    }
    expect([names.length, new Set(names).size, names[1], names.at(-1)]).toEqual([4510, 4510, 'd0001', 'd5009']);
    const { body } = await api.post('/filters/', { name: 'Many', query });
    expect(body.code).toBe(2001);
    expect((await api.get('/devices/?filter=Many@plain&max=1')).body.total_documents).toBe(4510);
    const series = await api.get('/devices/series/?filter=Many@plain&fields=bar');
    expect(series.body.result).toMatchObject([{ bar: { avg: 7.5 } }]);
  });

  it('is changed beside others', async () => {
    const path = '/devices/?latest.bar_from=0&type=meter&id_group=Hall@plain';
    const wrong = await api.patch(`${path}&confirm=5`, { description: 'wrong' });
    expect([wrong.body.code, wrong.body.details]).toEqual([4005, { matched: 4509 }]);
    const other = await api.patch(`${path}&confirm=4508`, { description: 'wrong' });
    expect([other.body.code, other.body.details]).toEqual([4005, { matched: 4509 }]);
    const right = await api.patch(`${path}&confirm=4509`, { description: 'changed' });
    expect([right.body.code, right.body.details]).toEqual([2005, { matched: 4509, changed: 4509 }]);
    const { db } = ctx.service;
    expect(await db.collection('devices').countDocuments({ description: 'wrong' })).toBe(0);
    const changed = { description: 'changed', type: 'meter', name: /^d/ };
    expect(await db.collection('devices').countDocuments(changed)).toBe(4509);
  });

  it('is that of the account of the key', async () => {
    const other = await ctx.service.client({ account: 'other' });
    expect((await other.get('/devices/?latest.bar_from=0')).status).toBe(400);
  });
});

describe('more lists at once than an account has slots for costly operations', () => {
  it.each([
    '?latest.bar=7&max=20',
    '?latest.phase=1&type=tenth&max=20',
    '?latest.phase=1&type=meter&latest.bar_from=0&max=20',
    '?latest.phase=1&type=meter&sort=latest.bar&max=20',
    '?latest.phase=1&type=meter&sort=latest.bar&format=ndjson&max=5',
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
