import { expect, it } from '@jest/globals';
import { parse } from 'csv-parse/sync';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

type Json = Record<string, unknown>;

const ctx = await useTestService();

const seriesOf = (id: string, query: string, plural: string) => ctx.api.get(`${pathOf(plural, id, 'series')}?${query}`);

const allAggregates = 'first,avg,min,max,sum,count,last';

interface Measurement {
  device: string;
  at: number;
  v: unknown;
}

let measured: Promise<{ group: string; streams: readonly Measurement[] }> | undefined;

/** Creates, once, a group of three devices with streams at different times, in order of time. */
function measuredGroup() {
  measured ??= createMeasuredGroup();
  return measured;
}

async function createMeasuredGroup() {
  const group = await ctx.fixtures.group();
  const devices: string[] = [];
  for (let n = 0; n < 3; n++) devices.push(await ctx.fixtures.device({ id_group: group }));
  const times = new Set([
    0,
    20_000,
    99_999.5,
    ...Array.from({ length: 2000 }, () => Math.round(Math.random() * 8e5) / 8),
  ]);
  const pick = <T>(choices: readonly T[]) => choices[Math.floor(Math.random() * choices.length)] as T;
  const streams = [...times]
    .toSorted((a, b) => a - b)
    .map((at) => ({ device: pick(devices), at, v: pick([Math.round(Math.random() * 400) / 4, -1, 'x', false, null]) }));
  for (const id of devices) {
    const sent = streams.filter(({ device }) => device === id).map(({ at, v }) => ({ at, data: { v } }));
    for (let from = 0; from < sent.length; from += 1000)
      expect((await ctx.api.post(pathOf('devices', id, 'streams'), sent.slice(from, from + 1000))).body.code).toBe(
        2001,
      );
  }
  return { group, streams };
}

/** Computes the entries of measurements in order of time. */
function computeEntries(streams: readonly Measurement[], every: number): Json[] {
  const buckets = new Map<number, unknown[]>();
  for (const { at, v } of streams) {
    const begin = Math.floor(at / every) * every;
    buckets.set(begin, [...(buckets.get(begin) ?? []), v]);
  }
  return [...buckets].map(([at, values]) => {
    const numbers = values.filter((value) => typeof value === 'number');
    const scalars = values.filter((value) => value !== null);
    const sum = numbers.reduce((total, value) => total + value, 0);
    const some = { avg: sum / numbers.length, min: Math.min(...numbers), max: Math.max(...numbers) };
    const ends = { first: scalars[0], last: scalars.at(-1) };
    return {
      at,
      count: values.length,
      v: { ...(numbers.length > 0 && some), ...(scalars.length > 0 && ends), sum, count: numbers.length },
    };
  });
}

it.each([
  { every: 7, at_from: 80_000, at_to: 99_999.5 },
  { every: 25, at_from: 0, at_to: 99_999 },
  { every: 60, at_from: 20_000.125, at_to: 99_999.5 },
  { every: 1000, at_from: 20_000, at_to: 99_999.5 },
  { every: 1000, at_from: 19_999.875, at_to: 20_000 },
  { every: 1000, at_from: 20_000.5, at_to: 22_999.5 },
  { every: 50_000, at_from: 99_999, at_to: 100_001 },
  { every: 86_400, at_from: 20_000, at_to: 99_999.5 },
  { every: 1_000_000_000, at_from: 0.5, at_to: 1e12 },
  { every: 10, at_from: 200_000, at_to: 200_100 },
])('a series equals a plain computation: $at_from to $at_to by $every', async ({ every, at_from, at_to }) => {
  const { group, streams } = await measuredGroup();
  const query = `fields=v&aggregate=${allAggregates}&every=${every}&at_from=${at_from}&at_to=${at_to}`;
  const inSpan = streams.filter(({ at }) => at >= at_from && at <= at_to);
  const devices = [...new Set(streams.map(({ device }) => device))].toSorted();
  const all = await seriesOf(group, query, 'groups');
  // together, so that few of them are split
  const [byDevice, csv, xml, ...each] = await Promise.all([
    seriesOf(group, `${query}&by=device`, 'groups'),
    seriesOf(group, `${query}&format=csv`, 'groups'),
    seriesOf(group, `${query}&format=xml`, 'groups'),
    ...devices.map((id) => seriesOf(id, query, 'devices')),
  ]);
  const expected = devices.map((id) =>
    computeEntries(
      inSpan.filter(({ device }) => device === id),
      every,
    ),
  );
  expect(all.body.result).toEqual(computeEntries(inSpan, every));
  expect(all.body.total_documents).toBe(all.body.result.length);
  expect(each.map(({ body }) => body.result)).toEqual(expected);
  expect(byDevice.body.result).toEqual(
    devices.flatMap((device, index) => expected[index]?.map((entry) => ({ device, ...entry }))),
  );
  const begins = (all.body.result as Json[]).map(({ at }) => String(at));
  expect((parse(csv.text, { columns: true }) as Json[]).map(({ at }) => at)).toEqual(begins);
  expect([...xml.text.matchAll(/<entry><at>([0-9]+)</g)].map(([, at]) => at)).toEqual(begins);
});
