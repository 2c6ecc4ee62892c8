import type { Result, Sample } from './measure.js';

const columns = [
  'row',
  'service',
  'floor',
  'ratio',
  'goal',
  'p50 / p99, ms',
  'floor',
  'CPU, ms',
  'floor',
  'mongod',
  'floor',
];

/** The results as a table in Markdown; processor time is of one request. */
export function tableOf(results: readonly Result[]): string {
  const lines = results.map(({ row, ratio, goal, service, floor }) => [
    row,
    perSecond(service),
    perSecond(floor),
    ratio.toFixed(2),
    `≥ ${goal.toFixed(2)}`,
    latency(service),
    latency(floor),
    service.server_cpu_s.toFixed(3),
    floor.server_cpu_s.toFixed(3),
    service.mongod_cpu_s.toFixed(3),
    floor.mongod_cpu_s.toFixed(3),
  ]);
  return [columns, columns.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

function perSecond({ per_second }: Sample): string {
  return `${Math.round(per_second)}/s`;
}

function latency({ p50_ms, p99_ms }: Sample): string {
  return `${p50_ms.toFixed(1)} / ${p99_ms.toFixed(1)}`;
}
