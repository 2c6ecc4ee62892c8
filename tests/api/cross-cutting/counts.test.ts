import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';

/** Counts by values (reference/lists.md#counts). */
const ctx = await useTestService();

const read = async (path: string) => {
  const { status, body } = await api.get(path);
  expect([path, status]).toEqual([path, 200]);
  return body;
};

const api = await ctx.service.client({ account: 'counted' });
const device = (name: string, place: object, more: object = {}) => ({
  resource: 'device',
  name,
  type: 'pump',
  ...place,
  ...more,
});
const hall = { id_group: 'Hall@counted' };
const shed = { id_asset: 'Shed@counted' };
const { totals } = await sendImport(api, [
  { resource: 'project', name: 'North', id_customer: 'c' },
  { resource: 'project', name: 'South', id_customer: 'c', enabled: false },
  { resource: 'service', name: 'Water', id_project: 'North@counted' },
  { resource: 'group', name: 'Hall', id_service: 'Water@counted' },
  { resource: 'group', name: 'Yard', id_service: 'Water@counted' },
  { resource: 'asset', name: 'Shed', id_group: 'Yard@counted' },
  { resource: 'model', name: 'M1' },
  device('a', hall, { id_model: 'M1@counted', networking: { type: 'gprs' } }),
  device('b', hall, { firmware: '1' }),
  device('c', shed, { type: 'valve', firmware: '1' }),
  device('d', shed, { firmware: '2', lon: 1, lat: 1 }),
  device('e', shed, { type: 'valve' }),
]);
expect(totals.failed).toBe(0);
await api.post('/streams/', { device: 'a@counted', data: { n: 1 } });
await api.post('/status/', { device: 'a@counted', data: { n: 1 } });
await api.post('/status/', { device: 'b@counted', data: { n: 1 } });
// another account
await ctx.fixtures.device();

describe('counts', () => {
  it.each([
    [
      'type',
      [
        ['pump', 3],
        ['valve', 2],
      ],
    ],
    [
      'id_model',
      [
        [null, 4],
        ['M1@counted', 1],
      ],
    ],
    [
      'firmware',
      [
        [null, 2],
        ['1', 2],
        ['2', 1],
      ],
    ],
    [
      'conn_type',
      [
        [null, 4],
        ['gprs', 1],
      ],
    ],
    [
      'status',
      [
        ['disconnected', 3],
        ['no_data', 1],
        ['ok', 1],
      ],
    ],
    [
      'id_asset',
      [
        ['Shed@counted', 3],
        [null, 2],
      ],
    ],
    [
      'id_group',
      [
        ['Yard@counted', 3],
        ['Hall@counted', 2],
      ],
    ],
    ['id_project', [['North@counted', 5]]],
    ['enabled', [[true, 5]]],
    ['owner', [['alice', 5]]],
  ] as const)('of devices by %s', async (by, expected) => {
    const { total_documents, result } = await read(`/devices/counts/?by=${by}`);
    expect(total_documents).toBe(5);
    expect(result.map((row: Record<string, unknown>) => [row[by], row.count])).toEqual(expected);
  });

  it('of two values at once', async () => {
    const { total_documents, result } = await read('/devices/counts/?by=type,id_group');
    expect([total_documents, result]).toEqual([
      5,
      [
        { type: 'pump', id_group: 'Hall@counted', count: 2 },
        { type: 'valve', id_group: 'Yard@counted', count: 2 },
        { type: 'pump', id_group: 'Yard@counted', count: 1 },
      ],
    ]);
    const { result: byFirmware } = await read('/devices/counts/?by=firmware,status');
    expect(byFirmware.reduce((sum: number, { count }: { count: number }) => sum + count, 0)).toBe(5);
    expect(byFirmware).toContainEqual({ firmware: null, status: 'ok', count: 1 });
  });

  it('take the filters of the list, and show at most `max` of the values', async () => {
    const matching = await read('/devices/counts/?by=type&id_group=Yard@counted&firmware=1');
    expect(matching).toEqual({ total_documents: 1, result: [{ type: 'valve', count: 1 }] });
    expect(await read('/devices/counts/?by=type&q=A')).toMatchObject({ total_documents: 1 });
    expect(await read('/devices/counts/?by=type&geo_lon=1&geo_lat=1&geo_distance=10')).toMatchObject({
      total_documents: 1,
    });
    expect(await read('/devices/counts/?by=type&type=none')).toEqual({ total_documents: 0, result: [] });
    expect(await read('/devices/counts/?by=firmware&max=1')).toEqual({
      total_documents: 5,
      result: [{ firmware: null, count: 2 }],
    });
    expect(await read('/devices/counts/?by=id_model&status=no_data')).toEqual({
      total_documents: 1,
      result: [{ id_model: null, count: 1 }],
    });
  });

  it('of the other types', async () => {
    expect(await read('/projects/counts/?by=enabled')).toEqual({
      total_documents: 2,
      result: [
        { enabled: false, count: 1 },
        { enabled: true, count: 1 },
      ],
    });
    expect(await read('/assets/counts/?by=id_service')).toEqual({
      total_documents: 1,
      result: [{ id_service: 'Water@counted', count: 1 }],
    });
    expect(await read('/groups/counts/?by=id_project')).toMatchObject({ total_documents: 2 });
    expect(await read('/services/counts/?by=name')).toMatchObject({ total_documents: 1 });
    expect(await read('/models/counts/?by=owner')).toMatchObject({ total_documents: 1 });
  });

  it('as XML and CSV', async () => {
    const xml = await api.get('/devices/counts/?by=firmware&max=1', { accept: 'application/xml' });
    expect(xml.text).toContain('<total_documents>5</total_documents>');
    expect(xml.text).toContain('<count>2</count>');
    const csv = await api.get('/devices/counts/?by=type&format=csv');
    expect(csv.text).toBe('type,count\r\npump,3\r\nvalve,2\r\n');
  });

  it.each([
    ['', 'by'],
    ['by=', 'by'],
    ['by=type,type', 'by'],
    ['by=type,owner,enabled', 'by'],
    ['by=created_at', 'by'],
    ['by=_t', 'by'],
    ['by=lon', 'by'],
    ['by=latest.bar', 'by'],
    ['by=q', 'by'],
    ['by=type&sort=type', 'sort'],
    ['by=type&order=1', 'order'],
    ['by=type&offset=1', 'offset'],
    ['by=type&max=0', 'max'],
    ['by=type&max=1001', 'max'],
    ['by=type&fields=type', 'fields'],
  ])('refuse ?%s', async (query, field) => {
    expect(summarize(await api.get(`/devices/counts/?${query}`))).toBe(`4004 ${field}`);
  });
});
