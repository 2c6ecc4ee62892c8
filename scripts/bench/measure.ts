import { setTimeout as sleep } from 'node:timers/promises';
import type { Generator, Measured, Requests } from './load.js';
import { cpuSeconds } from './process.js';
import type { Row } from './scenarios.js';
import type { Server } from './server.js';

/** One measurement of one server. */
export interface Sample extends Measured {
  /** Processor seconds per 1,000 requests. */
  server_cpu_s: number;
  mongod_cpu_s: number;
}

/** What a row has come to; each number is the median of its rounds. */
export interface Result {
  row: string;
  about: string;
  goal: number;
  /** Of the pairs that were measured one after the other: service over floor. */
  ratio: number;
  ratios: number[];
  service: Sample;
  floor: Sample;
}

interface Options {
  service: Server;
  floor: Server;
  mongod_pid: number;
  generator: Generator;
  rounds: number;
  seconds: number;
  say: (line: string) => void;
}

const warm_up_s = 2;
/** For requests that were under way when an earlier measurement ended. */
const settle_ms = 500;
const shown = /(?<=(?:id_developer|total_documents)(?:":"?|>))[^",<]+/g;

/** Measures both in turns, so that a busy machine bends both alike. @throws Error if any request has failed */
export async function measure(row: Row, options: Options): Promise<Result> {
  const { rounds, seconds, say } = options;
  const samples = { service: [] as Sample[], floor: [] as Sample[] };
  const sides = ['service', 'floor'] as const;
  await compareAnswers(row, options);
  for (const side of sides) await once(row, side, 'warm', warm_up_s, options);
  for (let round = 1; round <= rounds; round++) {
    for (const side of sides) {
      const sample = await once(row, side, `${round}`, seconds, options);
      samples[side].push(sample);
      const { per_second, p50_ms, p99_ms } = sample;
      const figures = `${Math.round(per_second)}/s, p50 ${p50_ms.toFixed(1)} ms, p99 ${p99_ms.toFixed(1)} ms`;
      say(`${row.name} ${round}/${rounds} ${side}: ${figures}`);
    }
  }
  const ratios = samples.service.map(
    ({ per_second }, nth) => per_second / (samples.floor[nth]?.per_second ?? Number.NaN),
  );
  return {
    row: row.name,
    about: row.about,
    goal: row.goal,
    ratio: median(ratios),
    ratios,
    service: medians(samples.service),
    floor: medians(samples.floor),
  };
}

async function once(
  row: Row,
  side: 'service' | 'floor',
  turn: string,
  seconds: number,
  options: Options,
): Promise<Sample> {
  const { generator, mongod_pid } = options;
  await sleep(settle_ms);
  const requests = await row[side](`${side[0]}${turn}`);
  return takeSample({
    server: options[side],
    requests,
    connections: row.connections,
    seconds,
    generator,
    mongod_pid,
  });
}

interface SampleOptions {
  server: Server;
  requests: Requests;
  connections: number;
  seconds: number;
  generator: Generator;
  mongod_pid: number;
}

/** Runs one measurement of one server. @throws Error if any request failed */
export async function takeSample(options: SampleOptions): Promise<Sample> {
  const { server, requests, connections, seconds, generator, mongod_pid } = options;
  const cpuTimes = () => Promise.all([server.pid, mongod_pid].map(cpuSeconds));
  const [server_before = 0, mongod_before = 0] = await cpuTimes();
  const measured = await generator.run({ url: server.url, requests, connections, seconds });
  const [server_after = 0, mongod_after = 0] = await cpuTimes();
  if (measured.failed > 0 || measured.requests === 0)
    throw new Error(`${measured.failed} of ${measured.requests} requests to ${server.url} failed`);
  const thousands = measured.requests / 1000;
  return {
    ...measured,
    server_cpu_s: (server_after - server_before) / thousands,
    mongod_cpu_s: (mongod_after - mongod_before) / thousands,
  };
}

async function compareAnswers(row: Row, { service, floor }: Options): Promise<void> {
  await assertSameAnswers([
    { server: service, requests: await row.service('compare') },
    { server: floor, requests: await row.floor('compare') },
  ]);
}

/**
 * Sends the first request of each side, unless it writes.
 * @throws Error unless all answers list the same devices in the same order, and the same total
 */
export async function assertSameAnswers(sides: readonly { server: Server; requests: Requests }[]): Promise<void> {
  const answers = await Promise.all(
    sides.map(async ({ server, requests: { method, headers, paths } }) => {
      if (method !== 'GET') return 'not compared';
      const text = await (await fetch(server.url + paths[0], { headers })).text();
      return [...text.matchAll(shown)].join() || `no device: ${text}`;
    }),
  );
  const [first = ''] = answers;
  if (first.startsWith('no device') || answers.some((answer) => answer !== first))
    throw new Error(`the servers answer differently:\n${answers.join('\n')}`);
}

/** The middle one of the numbers. */
export function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN;
}

function medians(samples: readonly Sample[]): Sample {
  const of = (key: keyof Sample) => median(samples.map((sample) => sample[key]));
  return {
    requests: of('requests'),
    per_second: of('per_second'),
    p50_ms: of('p50_ms'),
    p99_ms: of('p99_ms'),
    failed: of('failed'),
    server_cpu_s: of('server_cpu_s'),
    mongod_cpu_s: of('mongod_cpu_s'),
  };
}
