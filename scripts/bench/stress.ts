import type { Generator, Requests } from './load.js';
import { median } from './measure.js';
import { peakMib, resetPeak } from './process.js';
import type { Server } from './server.js';

/** What the service takes at most. */
export interface Limit {
  row: 'memory' | 'pause';
  about: string;
  unit: 'MiB' | 'ms';
  value: number;
  values: number[];
  goal: number;
}

interface Options {
  service: Server;
  generator: Generator;
  requests: Requests;
  rounds: number;
  seconds: number;
  say: (line: string) => void;
}

const connections = 16;
/** The histogram of prom-client measures from tick to tick, and ticks every 10 ms. */
const tick_ms = 10;

/**
 * Memory and pauses of the service while 16 clients fetch lists of 1,000 devices.
 * @throws Error if any request has failed
 */
export async function strain({ service, generator, requests, rounds, seconds, say }: Options): Promise<Limit[]> {
  const peaks_mib: number[] = [];
  const pauses_ms: number[] = [];
  const fetchLists = () => generator.run({ url: service.url, requests, connections, seconds });
  await fetchLists();
  for (let round = 1; round <= rounds; round++) {
    await resetPeak(service.pid);
    await longestTick(service);
    const { failed } = await fetchLists();
    const pause_ms = (await longestTick(service)) - tick_ms;
    const peak_mib = await peakMib(service.pid);
    if (failed > 0) throw new Error(`${failed} requests failed`);
    peaks_mib.push(peak_mib);
    pauses_ms.push(pause_ms);
    say(`strain ${round}/${rounds}: ${Math.round(peak_mib)} MiB, pause ${pause_ms.toFixed(1)} ms`);
  }
  const during = `${connections} parallel lists of 1,000`;
  return [
    {
      row: 'memory',
      about: `most memory in use during ${during}`,
      unit: 'MiB',
      value: Math.max(...peaks_mib),
      values: peaks_mib,
      goal: 300,
    },
    {
      row: 'pause',
      about: `longest pause of the event loop during ${during}, median of the rounds`,
      unit: 'ms',
      value: median(pauses_ms),
      values: pauses_ms,
      goal: 20,
    },
  ];
}

/** Since the last call, in milliseconds. */
async function longestTick({ url }: Server): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(text)?.[1]) * 1000;
}
