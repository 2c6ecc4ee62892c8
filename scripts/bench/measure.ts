import { setTimeout as sleep } from 'node:timers/promises';
import type { Generator, Measured } from './load.js';
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
  const { url, pid } = options[side];
  await sleep(settle_ms);
  const requests = await row[side](`${side[0]}${turn}`);
  const used = () => Promise.all([pid, mongod_pid].map(cpuSeconds));
  const [server_before = 0, mongod_before = 0] = await used();
  const measured = await generator.run({ url, requests, connections: row.connections, seconds });
  const [server_after = 0, mongod_after = 0] = await used();
  if (measured.failed > 0 || measured.requests === 0)
    throw new Error(`${side} failed ${measured.failed} of ${measured.requests} requests`);
  const thousands = measured.requests / 1000;
  return {
    ...measured,
    server_cpu_s: (server_after - server_before) / thousands,
    mongod_cpu_s: (mongod_after - mongod_before) / thousands,
  };
}

/** @throws Error unless both find the same devices, in the same order, and the same total */
async function compareAnswers(row: Row, options: Options): Promise<void> {
  const [service = '', floor = ''] = await Promise.all(
    (['service', 'floor'] as const).map(async (side) => {
      const { method, headers, paths } = await row[side]('compare');
      if (method !== 'GET') return 'written';
      const text = await (await fetch(options[side].url + paths[0], { headers })).text();
      return [...text.matchAll(shown)].join() || `nothing: ${text}`;
    }),
  );
  if (service !== floor || service.startsWith('nothing'))
    throw new Error(`service and floor answer differently:\n${service}\n${floor}`);
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
