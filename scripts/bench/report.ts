import type { Result, Sample } from './measure.js';
import type { Limit } from './stress.js';

const columns = [
  'row',
  'service',
  'floor',
  'ratio',
  'goal',
  ...['p50 / p99, ms: service', 'floor'],
  ...['CPU, s per 1,000: service', 'floor'],
  ...['of mongod: service', 'floor'],
];

/** The results as a table in Markdown. */
export function resultTable(results: readonly Result[]): string {
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
  return markdown([columns, ...lines]);
}

/** What must not be exceeded, as a table in Markdown. */
export function limitTable(limits: readonly Limit[]): string {
  const lines = limits.map(({ row, about, unit, value, goal }) => [
    row,
    about,
    `${value.toFixed(1)} ${unit}`,
    `≤ ${goal} ${unit}`,
  ]);
  return markdown([['row', '', 'measured', 'goal'], ...lines]);
}

/** Rows of cells as a table in Markdown, the first one as its head; empty without others. */
export function markdown([head = [], ...lines]: readonly (readonly string[])[]): string {
  if (lines.length === 0) return '';
  return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

function perSecond({ per_second }: Sample): string {
  return `${Math.round(per_second)}/s`;
}

function latency({ p50_ms, p99_ms }: Sample): string {
  return `${p50_ms.toFixed(1)} / ${p99_ms.toFixed(1)}`;
}
