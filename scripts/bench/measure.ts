import { setTimeout as sleep } from 'node:timers/promises';
import type { LoadGenerator, LoadResult, Requests } from './load.js';
import { readCpuSeconds } from './process.js';
import { printProgress } from './progress.js';
import type { Server } from './server.js';

/** One measurement of one server. */
export interface Sample extends LoadResult {
  /** CPU seconds per 1,000 requests. */
  server_cpu_s: number;
  mongod_cpu_s: number;
}

/** One of the servers that are compared, with the requests that it gets. */
export interface Side {
  name: string;
  server: Server;
  /** Creates the requests of a measurement; `runId` is unique among all measurements. */
  createRequests(runId: string): Promise<Requests>;
}

export interface MeasureOptions {
  mongod_pid: number;
  generator: LoadGenerator;
  /** Samples per side. */
  rounds: number;
  seconds: number;
}

const warm_up_s = 2;
/** Lets requests of the previous measurement finish. */
const pause_ms = 500;
const identifierOrTotal = /(?<=(?:id_developer|total_documents)(?:":"?|>))[^",<]+/g;
const time = /(?<=[{,]"at":)[^,}]+/g;
const max_shown_length = 300;

/**
 * Measures the sides in turn, so that other load on the machine affects all of them. @returns the samples of each side
 * @throws Error if the sides respond differently or a request fails
 */
export async function measureInTurns<Name extends string>(
  row: { name: string; connections: number },
  sides: readonly (Side & { name: Name })[],
  options: MeasureOptions,
): Promise<Record<Name, Sample[]>> {
  const { rounds, seconds } = options;
  await assertSameResponses(sides);
  for (const side of sides) await takeSample(side, 'warm', row.connections, { ...options, seconds: warm_up_s });
  const samples = Object.fromEntries(sides.map(({ name }) => [name, [] as Sample[]])) as Record<Name, Sample[]>;
  for (let round = 1; round <= rounds; round++) {
    for (const side of sides) {
      const sample = await takeSample(side, String(round), row.connections, { ...options, seconds });
      samples[side.name].push(sample);
      const { per_second, p50_ms, p99_ms } = sample;
      const figures = `${Math.round(per_second)}/s, p50 ${p50_ms.toFixed(1)} ms, p99 ${p99_ms.toFixed(1)} ms`;
      printProgress(`${row.name} ${round}/${rounds} ${side.name}: ${figures}`);
    }
  }
  return samples;
}

async function takeSample(side: Side, round: string, connections: number, options: MeasureOptions): Promise<Sample> {
  const { generator, mongod_pid, seconds } = options;
  const { url, pid } = side.server;
  await sleep(pause_ms);
  const requests = await side.createRequests(`${side.name[0]}${round}`);
  const readCpuTimes = () => Promise.all([pid, mongod_pid].map(readCpuSeconds));
  const [server_before = 0, mongod_before = 0] = await readCpuTimes();
  const result = await generator.run({ url, requests, connections, seconds });
  const [server_after = 0, mongod_after = 0] = await readCpuTimes();
  if (result.failed > 0 || result.requests === 0)
    throw new Error(`${result.failed} of ${result.requests} requests to ${side.name} failed`);
  const thousands = result.requests / 1000;
  return {
    ...result,
    server_cpu_s: (server_after - server_before) / thousands,
    mongod_cpu_s: (mongod_after - mongod_before) / thousands,
  };
}

/** @throws Error unless a read returns the same devices or streams in the same order, and the same total, from all sides */
async function assertSameResponses(sides: readonly Side[]): Promise<void> {
  const responses = await Promise.all(
    sides.map(async ({ server, createRequests }) => {
      const { method, headers, paths } = await createRequests('compare');
      if (method !== 'GET') return 'not compared';
      const text = await (await fetch(server.url + paths[0], { headers })).text();
      // streams and series have times
      return [...text.matchAll(time)].join() || [...text.matchAll(identifierOrTotal)].join() || `nothing: ${text}`;
    }),
  );
  const [first = ''] = responses;
  if (first.startsWith('nothing') || responses.some((response) => response !== first))
    throw new Error(
      `the servers respond differently:\n${responses.map((response) => response.slice(0, max_shown_length)).join('\n')}`,
    );
}

/** Returns the middle number, or the higher of the two in the middle. */
export function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN;
}

/** Returns a sample of the median of each figure. */
export function medianSample(samples: readonly Sample[]): Sample {
  const medianOf = (key: keyof Sample) => median(samples.map((sample) => sample[key]));
  return {
    requests: medianOf('requests'),
    per_second: medianOf('per_second'),
    p50_ms: medianOf('p50_ms'),
    p99_ms: medianOf('p99_ms'),
    failed: medianOf('failed'),
    server_cpu_s: medianOf('server_cpu_s'),
    mongod_cpu_s: medianOf('mongod_cpu_s'),
  };
}

/** Returns the ratios of the throughputs of samples taken one after the other. */
export function pairRatios(
  numerators: readonly Pick<Sample, 'per_second'>[],
  denominators: readonly Pick<Sample, 'per_second'>[],
): number[] {
  return numerators.map(({ per_second }, index) => per_second / (denominators[index]?.per_second ?? Number.NaN));
}
