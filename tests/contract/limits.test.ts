import { beforeAll, describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../support/expect-status.js';
import { pathOf } from '../support/service.js';

const ctx = await useTestService();
const emoji = '\u{1F6F0}';

it('accepts a conn_address of at most 50 characters', async () => {
  const address = '0000:0000:0000:0000:0000:ffff:255.255.255.255%eth0';
  const id_group = await ctx.fixtures.group();
  const send = async (conn_address: string) => {
    const networking = { type: 'wifi', conn_address };
    return summarize(await ctx.api.post('/devices/', { name: 'd', type: 't', id_group, networking }));
  };
  // without a zone, the longest form of an address has 45 characters
  expect(await send(address.slice(0, 45))).toBe('2001');
  expect(await send(`${address}0`)).toBe('4003 networking.conn_address');
});

it.each([
  ['projects', 'name', 50],
  ['projects', 'id_developer', 100],
  ['devices', 'type', 50],
  ['devices', 'sensor', 50],
  ['devices', 'description', 200],
  ['devices', 'firmware', 50],
  ['devices', 'carrier', 50],
  ['devices', 'telephone_number', 15],
  ['devices', 'id_developer', 100],
] as const)('%s: the filter %s accepts %i code points and rejects one more', async (plural, param, max_length) => {
  const empty = await ctx.service.client({ account: 'empty' });
  for (const unit of ['x', encodeURIComponent(emoji)]) {
    expect((await empty.get(`/${plural}/?${param}=${unit.repeat(max_length)}`)).body).toEqual({
      total_documents: 0,
      result: [],
    });
    expect(summarize(await empty.get(`/${plural}/?${param}=${unit.repeat(max_length + 1)}`))).toBe(`4004 ${param}`);
  }
});

it('accepts only 18 characters for the filter sim_card', async () => {
  for (const [length, expected] of [
    [17, 400],
    [18, 200],
    [19, 400],
  ])
    expect((await ctx.api.get(`/devices/?sim_card=${'1'.repeat(length ?? 0)}`)).status).toBe(expected);
});

describe('with more than 1000 objects', () => {
  const count = 1003;
  let id_group: string;
  let id_service: string;
  let device: string;
  beforeAll(async () => {
    id_service = await ctx.fixtures.service();
    id_group = await ctx.fixtures.group({ id_service });
    device = await ctx.fixtures.device({ id_group });
    expect(
      summarize(
        await ctx.api.post(pathOf('devices', device, 'deviceconfigs'), { name: 'f', version: '0', file: 'YQ==' }),
      ),
    ).toBe('2001');
    // copies of documents that the service stored, because a thousand creates are slow
    for (const [plural, query] of [
      ['devices', { id_developer: device }],
      ['deviceconfigs', { device }],
      ['groups', { id_developer: id_group }],
    ] as const) {
      const collection = ctx.service.db.collection(plural);
      const original = await collection.findOne(query);
      const copies = Array.from({ length: count - 1 }, (_, index) => {
        const name = `${original?.name} ${index}`;
        return { ...original, _id: ctx.service.db.newId(), name, id_developer: `${name}@acme` };
      });
      await collection.insertMany(copies);
    }
  });

  it.each([
    ['devices', () => '/devices/', 1],
    ['the devices of a group', () => pathOf('groups', id_group, 'devices'), 0],
    ['the groups of a service', () => pathOf('services', id_service, 'groups'), 0],
    ['the configs of a device', () => pathOf('devices', device, 'deviceconfigs'), 0],
  ])('lists at most 1000 of %s, 1000 by default, with the exact total', async (_, listPath) => {
    const list = async (query: string) => {
      const { status, body } = await ctx.api.get(`${listPath()}?${query}`);
      return [status, body.total_documents, body.result?.length];
    };
    const [, total] = await list('max=1');
    expect(total).toBeGreaterThanOrEqual(count);
    expect(await list('')).toEqual([200, total, 1000]);
    expect(await list('max=1000')).toEqual([200, total, 1000]);
    expect(await list('max=1')).toEqual([200, total, 1]);
    expect(await list('offset=1000')).toEqual([200, total, total - 1000]);
    expect(await list(`offset=${total}`)).toEqual([200, total, 0]);
    for (const invalid of ['max=0', 'max=1001'])
      expect(summarize(await ctx.api.get(`${listPath()}?${invalid}`))).toBe('4004 max');
  });
});
