import type { LoadGenerator, Requests } from './load.js';
import { median } from './measure.js';
import { readPeakMib, resetPeakMemory } from './process.js';
import { printProgress } from './progress.js';
import type { Server } from './server.js';

/** The measured maximum of a resource. */
export interface LimitResult {
  row: 'memory' | 'pause';
  description: string;
  unit: 'MiB' | 'ms';
  value: number;
  values: number[];
  goal: number;
}

interface Options {
  service: Server;
  generator: LoadGenerator;
  requests: Requests;
  rounds: number;
  seconds: number;
}

const connections = 16;
/** The event-loop histogram of prom-client samples every 10 ms and includes this interval. */
const sample_interval_ms = 10;

/**
 * Measures memory and event-loop delay of the service while 16 clients fetch lists of 1,000 devices.
 * @throws Error if a request fails
 */
export async function measureLimits(options: Options): Promise<LimitResult[]> {
  const { service, generator, requests, rounds, seconds } = options;
  const peaks_mib: number[] = [];
  const pauses_ms: number[] = [];
  const fetchLists = () => generator.run({ url: service.url, requests, connections, seconds });
  await fetchLists();
  for (let round = 1; round <= rounds; round++) {
    await resetPeakMemory(service.pid);
    await readMaxLag(service);
    const { failed } = await fetchLists();
    const pause_ms = (await readMaxLag(service)) - sample_interval_ms;
    const peak_mib = await readPeakMib(service.pid);
    if (failed > 0) throw new Error(`${failed} requests failed`);
    peaks_mib.push(peak_mib);
    pauses_ms.push(pause_ms);
    printProgress(`stress ${round}/${rounds}: ${Math.round(peak_mib)} MiB, pause ${pause_ms.toFixed(1)} ms`);
  }
  const load = `${connections} parallel lists of 1,000`;
  return [
    {
      row: 'memory',
      description: `peak memory during ${load}`,
      unit: 'MiB',
      value: Math.max(...peaks_mib),
      values: peaks_mib,
      goal: 300,
    },
    {
      row: 'pause',
      description: `longest pause of the event loop during ${load}, median of the rounds`,
      unit: 'ms',
      value: median(pauses_ms),
      values: pauses_ms,
      goal: 20,
    },
  ];
}

/** Reads the maximum event-loop lag since the previous call, in milliseconds; the service resets it on each scrape. */
async function readMaxLag({ url }: Server): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(text)?.[1]) * 1000;
}
