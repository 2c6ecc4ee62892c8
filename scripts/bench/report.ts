import type { Sample } from './measure.js';
import type { LimitResult } from './stress.js';

/** The comparison of service and baseline in one scenario. All figures are medians. */
export interface ComparisonResult {
  row: string;
  description: string;
  goal?: number | undefined;
  /** The throughput of the service divided by that of the baseline, of samples taken one after the other. */
  ratio: number;
  ratios: number[];
  service: Sample;
  baseline: Sample;
}

const header = [
  'row',
  'service',
  'baseline',
  'ratio',
  'goal',
  ...['p50 / p99, ms: service', 'baseline'],
  ...['CPU, s per 1,000: service', 'baseline'],
  ...['of mongod: service', 'baseline'],
];

/** Formats comparisons as a Markdown table. */
export function formatComparisons(results: readonly ComparisonResult[]): string {
  const rows = results.map(({ row, ratio, goal, service, baseline }) => [
    row,
    formatRate(service),
    formatRate(baseline),
    ratio.toFixed(2),
    goal === undefined ? '' : `≥ ${goal.toFixed(2)}`,
    formatLatency(service),
    formatLatency(baseline),
    service.server_cpu_s.toFixed(3),
    baseline.server_cpu_s.toFixed(3),
    service.mongod_cpu_s.toFixed(3),
    baseline.mongod_cpu_s.toFixed(3),
  ]);
  return formatTable([header, ...rows]);
}

/** Formats limits as a Markdown table. */
export function formatLimits(limits: readonly LimitResult[]): string {
  const rows = limits.map(({ row, description, unit, value, goal }) => [
    row,
    description,
    `${value.toFixed(1)} ${unit}`,
    `≤ ${goal} ${unit}`,
  ]);
  return formatTable([['row', '', 'measured', 'goal'], ...rows]);
}

/** Formats a header and rows as a Markdown table; returns an empty string without rows. */
export function formatTable([head = [], ...rows]: readonly (readonly string[])[]): string {
  if (rows.length === 0) return '';
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** Formats the throughput of a sample. */
export function formatRate({ per_second }: Sample): string {
  return `${Math.round(per_second)}/s`;
}

function formatLatency({ p50_ms, p99_ms }: Sample): string {
  return `${p50_ms.toFixed(1)} / ${p99_ms.toFixed(1)}`;
}
