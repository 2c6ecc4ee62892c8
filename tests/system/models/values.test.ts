import { expect, it } from '@jest/globals';
import {
  createRandomCondition,
  createRandomStream,
  formatCondition,
  listByModel,
  type ModelDevice,
  type ModelValueStream,
  modelPaths,
} from '../../../scripts/checks/value-model.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { createRandom } from '../../support/random.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });

// npm run values runs for longer
const steps = 120;
const seed = 28;

it('lists devices by their last values as a model does', async () => {
  const random = createRandom(seed);
  const { service, api } = ctx;
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const id_group = await ctx.fixtures.group({ name: 'Hall' });
  const measures = modelPaths.map((path) => ({ path, filter: true }));
  expect((await api.post('/models/', { name: 'Gauge', measures })).body.code).toBe(2001);
  const devices: ModelDevice[] = [];
  const create = async (name: string) => {
    await ctx.fixtures.device({ name, id_group });
    devices.push({ name, streams: [] });
  };
  for (const name of ['a', 'b', 'c', 'd']) await create(name);
  const path = (device: ModelDevice) => pathOf('devices', `${device.name}@acme`, 'streams');
  await waitUntil(async () => (await api.get('/devices/?sort=latest.bar&latest.temp=1&latest.valve=1')).status === 200);

  async function send(): Promise<void> {
    const device = pick(devices);
    const streams = Array.from({ length: random() < 0.8 ? 1 : 3 }, () => createRandomStream(random, service.now()));
    expect((await api.post(path(device), streams)).body.code).toBe(2001);
    device.streams.push(...streams);
  }
  /** Removes streams as the interface does. */
  async function remove(device: ModelDevice, query: string, isGone: (stream: ModelValueStream) => boolean) {
    expect((await api.delete(`${path(device)}${query}`)).body.code).toBe(2004);
    device.streams = device.streams.filter((stream) => !isGone(stream));
  }
  async function change(): Promise<void> {
    const device = pick(devices);
    const kind = random();
    if (kind < 0.3) {
      const from = service.now() - Math.floor(random() * 10);
      return remove(device, `?at_from=${from}`, ({ at }) => at >= from);
    }
    if (kind < 0.4) return remove(device, '', () => true);
    if (kind < 0.5) {
      await api.delete(pathOf('devices', `${device.name}@acme`));
      devices.splice(devices.indexOf(device), 1);
      return create(device.name);
    }
    service.advance(Math.ceil(random() * 5));
  }
  async function compare(measured: string, direction: 1 | -1): Promise<void> {
    const condition = createRandomCondition(random);
    const query = `sort=latest.${measured}&order=${direction}&fields=name${formatCondition(measured, condition)}`;
    const expected = listByModel(devices, measured, { ...(condition && { condition }), now: service.now() });
    if (direction === -1) expected.reverse();
    const { body } = await api.get(`/devices/?${query}`);
    const names = body.result.map(({ name }: { name: string }) => name);
    expect([query, names, body.total_documents]).toEqual([query, expected, expected.length]);
  }

  const reviews = service.db.collection('device_value_reviews');
  for (let step = 0; step < steps; step++) {
    const isSent = random() < 0.9;
    await (isSent ? send() : change());
    const due = { due_at: { $lte: service.now() } };
    // what deletions and the time change is computed soon after
    if (!isSent) await waitUntil(async () => (await reviews.countDocuments(due)) === 0);
    for (const measured of modelPaths) await compare(measured, random() < 0.5 ? 1 : -1);
  }
});
