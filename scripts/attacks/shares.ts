import { setTimeout as sleep } from 'node:timers/promises';
import { awaitWithin, readResident_mib } from '../support/instance.js';
import { createAttacker, type SharedAttack } from './attacker.js';
import { sharedAttacks } from './attackers.js';
import { batchAttacks } from './batch-attackers.js';
import { type Figures, startNeighbour } from './neighbour.js';
import { type Attack, assert, password, startTarget, type Target } from './target.js';

/** Figures beside one attack: of another account, of the memory, and of a stop. */
export interface ShareResult {
  name: string;
  /** Before the attack. */
  control: Figures;
  figures: Figures;
  peak_mib: number;
  stop_ms: number;
}

const [control_s, measured_s] = [4, 12];
const warm_up_ms = 2000;
const max_median_ms = 250;
const max_request_ms = 1000;
const max_arrival_ms = 2000;
const max_resident_mib = 1024;
/** reference/configuration.md#stop */
const max_stop_ms = 10_000;
const stop_limit_ms = 60_000;
const sample_ms = 100;

/** Creates the attacks on shares, each on an instance of its own, which is stopped at the end. @param results receives the figures */
export function createShareAttacks(results: ShareResult[]): Attack[] {
  return [...sharedAttacks, ...batchAttacks].map((attack) => ({
    name: `shares: ${attack.name}`,
    async run({ calm_limit_ms }) {
      const result = await measureAttack(attack);
      results.push(result);
      const faults = findFaults(result, calm_limit_ms / 1000);
      assert(faults.length === 0, faults.join('; '));
    },
  }));
}

async function measureAttack(attack: SharedAttack): Promise<ShareResult> {
  const target = await startTarget({ isLarge: false, patience: 1 });
  const ending = new AbortController();
  try {
    const { url, mqttPort, key } = target;
    const account = attack.isOwn ? 'demo' : 'bystander';
    const ownKey = attack.isOwn ? await target.issueKey(account, 'admin') : target.bystanderKey;
    const neighbour = await startNeighbour({ url, mqttPort, account, key: ownKey, password });
    try {
      const control = await neighbour.measure(control_s);
      await attack.start(createAttacker(target, 'demo', key, { strength: 1, signal: ending.signal }));
      await sleep(warm_up_ms);
      const memory = watchMemory(target.pid);
      const figures = await neighbour.measure(measured_s);
      const peak_mib = memory.stop();
      assert(!target.hasExited(), 'the service has ended');
      return { name: attack.name, control, figures, peak_mib, stop_ms: await stopTarget(target) };
    } finally {
      await neighbour.close();
    }
  } finally {
    ending.abort();
    await target.close();
  }
}

function watchMemory(pid: number): { stop(): number } {
  let peak_mib = 0;
  const timer = setInterval(() => {
    peak_mib = Math.max(peak_mib, readResident_mib(pid));
  }, sample_ms);
  return {
    stop() {
      clearInterval(timer);
      return peak_mib;
    },
  };
}

/** Stops the service under attack. @returns the time that it takes */
async function stopTarget(target: Target): Promise<number> {
  const begun_ms = performance.now();
  target.kill('SIGTERM');
  await awaitWithin(target.ended, stop_limit_ms, 'stopping');
  return performance.now() - begun_ms;
}

function medianOf(times_ms: readonly number[]): number {
  return times_ms.toSorted((a, b) => a - b)[Math.floor(times_ms.length / 2)] ?? Number.POSITIVE_INFINITY;
}

function findFaults({ figures, peak_mib, stop_ms }: ShareResult, patience: number): string[] {
  const { reads_ms, creates_ms, streams_ms, webhooks_ms, messages_ms, failures } = figures;
  const requests_ms = [...reads_ms, ...creates_ms, ...streams_ms];
  const limits: [what: string, value: number, limit: number][] = [
    ['ms for a read at the median', medianOf(reads_ms), max_median_ms * patience],
    ['ms for a create at the median', medianOf(creates_ms), max_median_ms * patience],
    ['ms for a stream at the median', medianOf(streams_ms), max_median_ms * patience],
    ['ms for a request', Math.max(...requests_ms), max_request_ms * patience],
    ['ms for an event to reach a webhook', Math.max(...webhooks_ms), max_arrival_ms * patience],
    ['ms for an MQTT message', Math.max(...messages_ms), max_arrival_ms * patience],
    ['MiB of memory', peak_mib, max_resident_mib],
    ['ms to stop', stop_ms, max_stop_ms * patience],
  ];
  return [
    ...limits.filter(([, value, limit]) => value > limit).map(([what, value]) => `${Math.round(value)} ${what}`),
    ...(failures.length === 0 ? [] : [`${failures.length} failures, the first ${failures[0]}`]),
  ];
}

/** Formats the figures as a table in Markdown: before and during the attack, requests as median / longest, in ms. */
export function formatFigures(results: readonly ShareResult[]): string {
  const whole = (value: number) => String(Math.round(value));
  const both = (before: Figures, during: Figures, textOf: (figures: Figures) => string) =>
    `${textOf(before)} → ${textOf(during)}`;
  const rows = results.map(({ name, control, figures, peak_mib, stop_ms }) => [
    name,
    ...(['reads_ms', 'creates_ms', 'streams_ms'] as const).map((kind) =>
      both(control, figures, ({ [kind]: times }) => `${whole(medianOf(times))} / ${whole(Math.max(...times))}`),
    ),
    ...(['webhooks_ms', 'messages_ms'] as const).map((kind) =>
      both(control, figures, ({ [kind]: times }) => whole(Math.max(...times))),
    ),
    ...[String(figures.failures.length), String(peak_mib), (stop_ms / 1000).toFixed(1)],
  ]);
  const head = ['one account', 'read', 'create', 'stream', 'webhook', 'MQTT', 'failures', 'MiB', 'stop, s'];
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}
