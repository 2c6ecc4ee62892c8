import { expect, it } from '@jest/globals';
import { createAlarmTools } from '../../support/alarms.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });
const tools = createAlarmTools(ctx);
/** More levels than any data has, and than the database takes. */
const deepPaths = ['/a'.repeat(240), Array(120).fill('a').join('.'), '/1'.repeat(240)];

it.each([...deepPaths, '/1'.repeat(16), '/1'.repeat(10)])('series and filters find nothing at %s', async (path) => {
  const device = await ctx.fixtures.device({ properties: { a: 1 } });
  const at = ctx.service.now();
  await tools.send(device, { at, data: { a: 1, b: 2 } });
  const fields = [path, `${path}x`, `${path}y`].map(encodeURIComponent).join();
  const { status, body } = await ctx.api.get(`${pathOf('devices', device, 'series')}?fields=${fields},b&every=60`);
  expect([status, body.result]).toEqual([200, [expect.objectContaining({ count: 1, b: { avg: 2, min: 2, max: 2 } })]]);
  expect((await ctx.api.get(`/devices/?properties.${path}=1`)).body).toMatchObject({ total_documents: 0 });
});

it('an element of an array in an array is found', async () => {
  const device = await ctx.fixtures.device();
  await tools.send(device, { data: { rows: [[0], [[1, { 2: 7 }]]] } });
  const query = 'fields=/rows/1/0/1/2&aggregate=last&every=60';
  const { body } = await ctx.api.get(`${pathOf('devices', device, 'series')}?${query}`);
  expect(body.result).toMatchObject([{ '/rows/1/0/1/2': { last: 7 } }]);
});

it('a rule with one keeps no other rule from being evaluated', async () => {
  const device = await ctx.fixtures.device();
  await tools.send(device, { data: { bar: 9 } });
  for (const path of deepPaths)
    await tools.rule({
      conditions: [
        { path, op: '>', value: 1 },
        { absent: path, minutes: 1 },
      ],
      match: 'any',
    });
  await tools.rule({ conditions: [{ path: 'bar', op: '>', value: 8 }], id_device: device });
  await waitUntil(async () => (await tools.statesOf(device)).includes('active'));
});

it('a measure with one keeps no other measure from being filtered by', async () => {
  const id_model = await ctx.fixtures.model();
  const device = await ctx.fixtures.device({ id_model });
  await tools.send(device, { data: { fresh: 4 } });
  const measures = [...deepPaths, 'fresh'].map((path, index) => ({ name: `m${index}`, path, filter: true }));
  expect((await ctx.api.put(pathOf('models', id_model), { measures })).body.code).toBe(2005);
  await waitUntil(async () => (await ctx.api.get('/devices/?latest.fresh=4')).body.total_documents === 1);
});
