import { buildPathExpression } from '../objects/select/path-filters.js';
import type { DataPath } from '../schema/data-path.js';
import { scalarTypes } from '../summaries/derive.js';
import { readSummaryPath } from '../summaries/plan.js';

/** Aggregates of the values in a bucket (reference/series.md#aggregates). */
export const aggregates = ['avg', 'min', 'max', 'sum', 'count', 'first', 'last'] as const;
export type Aggregate = (typeof aggregates)[number];

/** The paths and aggregates of a series. */
interface Wanted {
  paths: readonly DataPath[];
  aggregates: readonly Aggregate[];
}

type Accumulators = Record<string, object>;

/** Builds the accumulators of a bucket: `streams`, and some for each path, named by its position. */
export function buildStreamAccumulators({ paths, aggregates: wanted }: Wanted): Accumulators {
  return accumulate(paths, wanted, { $sum: 1 }, (path) => {
    const value = buildPathExpression('$data', path);
    const number = { $cond: [{ $isNumber: value }, value, null] };
    const sample = (n: unknown) => ({
      $cond: [{ $in: [{ $type: value }, scalarTypes] }, { at: '$_id.at', n, value }, null],
    });
    return {
      avg: { $avg: value },
      min: { $min: number },
      max: { $max: number },
      sum: { $sum: value },
      count: { $sum: { $cond: [{ $isNumber: value }, 1, 0] } },
      first: { $min: sample({ $multiply: ['$_id.n', -1] }) },
      last: { $max: sample('$_id.n') },
    };
  });
}

/** Builds the same accumulators of summaries of hours. */
export function buildSummaryAccumulators({ paths, aggregates: wanted }: Wanted): Accumulators {
  return accumulate(paths, wanted, { $sum: '$streams' }, (path) => {
    const input = readSummaryPath(path);
    const member = (field: string) => ({ $getField: { field, input } });
    const sample = (field: string, n: unknown) => {
      const kept = { at: '$$sample.at', n, value: '$$sample.value' };
      const found = { $cond: [{ $gt: ['$$sample', null] }, kept, null] };
      return { $let: { vars: { sample: member(field) }, in: found } };
    };
    return {
      avg: {},
      min: { $min: member('min') },
      max: { $max: member('max') },
      sum: { $sum: member('sum') },
      count: { $sum: member('count') },
      first: { $min: sample('first', { $multiply: ['$$sample.n', -1] }) },
      last: { $max: sample('last', '$$sample.n') },
    };
  });
}

/** The aggregates from which those of several parts of a bucket are computed. */
export function findPartialAggregates(wanted: readonly Aggregate[]): Aggregate[] {
  return [...new Set(wanted.flatMap((each): Aggregate[] => (each === 'avg' ? ['sum', 'count'] : [each])))];
}

/** Builds the stages that merge parts of buckets. */
export function mergeParts({ paths, aggregates: wanted }: Wanted): object[] {
  const merged = accumulate(paths, findPartialAggregates(wanted), { $sum: '$streams' }, (_path, index) => ({
    avg: {},
    min: { $min: `$min${index}` },
    max: { $max: `$max${index}` },
    sum: { $sum: `$sum${index}` },
    count: { $sum: `$count${index}` },
    first: { $min: `$first${index}` },
    last: { $max: `$last${index}` },
  }));
  const averages = paths.map((_path, index) => {
    const average = { $divide: [`$sum${index}`, `$count${index}`] };
    return [`avg${index}`, { $cond: [{ $gt: [`$count${index}`, 0] }, average, null] }];
  });
  const group = { $group: { _id: '$_id', ...merged } };
  return wanted.includes('avg') ? [group, { $set: Object.fromEntries(averages) }] : [group];
}

function accumulate(
  paths: readonly DataPath[],
  wanted: readonly Aggregate[],
  streams: object,
  accumulatorsOf: (path: DataPath, index: number) => Record<Aggregate, object>,
): Accumulators {
  const accumulators: Accumulators = { streams };
  for (const [index, path] of paths.entries()) {
    const expressions = accumulatorsOf(path, index);
    for (const aggregate of wanted) accumulators[`${aggregate}${index}`] = expressions[aggregate];
  }
  return accumulators;
}
