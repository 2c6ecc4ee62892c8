import { expect, it } from '@jest/globals';
import {
  computeSeries,
  createRandomData,
  formatEntries,
  modelAggregates,
  readEntries,
  type SummaryModelStream,
  summaryPaths,
} from '../../../scripts/checks/summary-model.js';
import { silentLog } from '../../../src/lib/log.js';
import { removeOldStreams } from '../../../src/streams/retention.js';
import { progressOf } from '../../../src/summaries/hours.js';
import { createSummaryWork } from '../../../src/summaries/job.js';
import { useTestService } from '../../support/expect-status.js';
import { createRandom } from '../../support/random.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

// npm run summaries runs for longer, with kill -9
const steps = Number(process.env.STEPS ?? 400);
const seed = Number(process.env.SEED ?? 22);
const day_s = 86_400;
const hours = 60;
const turn = { isLeaseHeld: () => true, pause: async () => undefined };

interface ModelDevice {
  id: string;
  streams: SummaryModelStream[];
}

it('answers series of hours, days and local days as a plain model does', async () => {
  const random = createRandom(seed);
  const { service, api } = ctx;
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const work = createSummaryWork({ db: service.db, log: silentLog, metrics: { until() {}, summarized() {} } });
  const groups = [await ctx.fixtures.group(), await ctx.fixtures.group()];
  const devices: ModelDevice[] = [];
  const create = async (name: string) =>
    devices.push({ id: await ctx.fixtures.device({ name, id_group: pick(groups) }), streams: [] });
  for (const name of ['a', 'b', 'c']) await create(name);
  const start = Math.floor(service.now() / 3600) * 3600 - 40 * 3600;
  const timeOf = () => start + Math.floor(random() * 4 * 3600 * hours) / 4;
  const path = ({ id }: ModelDevice) => pathOf('devices', id, 'streams');

  async function send(): Promise<void> {
    const device = pick(devices);
    const now = service.now();
    const count = 1 + Math.floor(random() * 8);
    const times = Array.from({ length: count }, () => (random() < 0.3 ? now - Math.floor(random() * 30) : timeOf()));
    const streams = times.map((at) => ({ at: random() < 0.2 ? pick(times) : at, data: createRandomData(random) }));
    const skips = random() < 0.3;
    const { body } = await api.post(`${path(device)}${skips ? '?on_conflict=skip' : ''}`, streams);
    expect(body.code).toBe(2001);
    for (const stream of streams) {
      const isStored = device.streams.some(({ at, isRemoved }) => at === stream.at && !isRemoved);
      if (!skips || !isStored) device.streams.push(stream);
    }
  }

  async function removeSpan(): Promise<void> {
    const device = pick(devices);
    const [from = 0, to = 0] = [timeOf(), timeOf()].toSorted((first, second) => first - second);
    const limit = random() < 0.3 ? '&max=3&order=1' : '';
    const { status } = await api.delete(`${path(device)}?at_from=${from}&at_to=${to}${limit}`);
    expect(status).toBe(200);
    const inSpan = device.streams
      .filter(({ at, isRemoved }) => !isRemoved && at >= from && at <= to)
      .toSorted((first, second) => first.at - second.at);
    const gone = new Set(limit === '' ? inSpan : inSpan.slice(0, 3));
    const isWholeHour = (at: number) => at - (at % 3600) >= from && at - (at % 3600) + 3600 <= to;
    device.streams = device.streams.filter(
      (stream) => !gone.has(stream) && !(limit === '' && stream.isRemoved && isWholeHour(stream.at)),
    );
  }

  async function recreate(): Promise<void> {
    const [device] = devices.splice(Math.floor(random() * devices.length), 1);
    expect((await api.delete(pathOf('devices', device?.id ?? ''))).status).toBe(200);
    await create((device?.id ?? '').split('@')[0] ?? '');
  }

  async function retain(): Promise<void> {
    // what is marked stays until it is summarised again
    await summarize(700);
    const days = pick([1, 2]);
    await removeOldStreams(service.db, { streams: days }, service.now(), turn);
    const { until = 0 } = (await progressOf(service.db).findOne({ _id: 'streams' })) ?? {};
    const cutoff = Math.min(Math.floor((service.now() - days * day_s) / 3600) * 3600, until);
    for (const { streams } of devices) for (const stream of streams) if (stream.at < cutoff) stream.isRemoved = true;
  }

  async function summarize(seconds: number): Promise<void> {
    service.advance(seconds);
    for (let isMore = true; isMore; ) isMore = await work(service.now(), turn);
  }

  async function compare(): Promise<void> {
    const field = pick(summaryPaths);
    const every = pick([3600, 7200, day_s]);
    const [from, to] = [start - (start % day_s), start + 80 * 3600];
    const query = `fields=${field}&aggregate=${modelAggregates}&every=${every}&at_from=${from}&at_to=${to}`;
    const beginningOf = (at: number) => at - (at % every);
    const device = pick(devices);
    const { body } = await api.get(`${pathOf('devices', device.id, 'series')}?${query}`);
    const expected = formatEntries(computeSeries(device.streams, field, beginningOf));
    expect(formatEntries(readEntries(body.result, field))).toBe(expected);
  }

  for (let step = 0; step < steps; step++) {
    const roll = random();
    if (roll < 0.4) await send();
    else if (roll < 0.48) await removeSpan();
    else if (roll < 0.5) await recreate();
    else if (roll < 0.53) await retain();
    else if (roll < 0.7) await summarize(pick([1, 61, 400, 3600]));
    else await compare();
  }
  for (const device of devices) {
    await summarize(4000);
    expect(device.streams.length).toBeGreaterThanOrEqual(0);
    await compare();
  }
});
