import { read_limit_ms } from '../db/database.js';
import { findAll, type RawQuery } from '../db/raw-find.js';
import { type DataPath, isTooDeep } from '../schema/data-path.js';
import { type PathCondition, readExact } from '../schema/path-filters.js';
import type { ListedType } from '../schema/resource.js';
import type { OperationContext } from './context.js';

type Expression = string | object;

/** Reads the value at a path. Keys are literals, as MongoDB would interpret some. */
export function buildPathExpression(root: string, path: DataPath): Expression {
  if (isTooDeep(path)) return '$$REMOVE';
  return path.steps.reduce<Expression>((input, { key, index }) => {
    if (index === undefined) return buildMemberExpression(input, key);
    // named once: the expression would double with each step
    const element = { $arrayElemAt: ['$$value', index] };
    const choice = { $cond: [{ $isArray: ['$$value'] }, element, buildMemberExpression('$$value', key)] };
    return { $let: { vars: { value: input }, in: choice } };
  }, root);
}

function buildMemberExpression(input: Expression, key: string): Expression {
  return { $getField: { field: { $literal: key }, input } };
}

/**
 * Builds the filter of a comparison with a member that objects inherit key by key (reference/devices.md#model-properties):
 * their own value counts, or that of the object which they name if they do not have the key.
 */
export async function buildInheritedFilter(
  { store, account }: Pick<OperationContext, 'store' | 'account'>,
  { inherits }: ListedType,
  condition: PathCondition,
  readConcern?: RawQuery['readConcern'],
): Promise<object> {
  const { member, path } = condition;
  const matches = buildComparison(buildPathExpression(`$${member}`, path), condition);
  const own = { $expr: matches };
  if (inherits?.member !== member) return own;
  const sources = await findAll(store.db.collection(inherits.plural), {
    filter: { account, $expr: matches },
    projection: { id_developer: 1 },
    maxTimeMS: read_limit_ms,
    ...(readConcern && { readConcern }),
  });
  if (sources.length === 0) return own;
  const key = buildMemberExpression(`$${member}`, path.steps[0]?.key ?? '');
  const ids = sources.map(({ id_developer }) => id_developer);
  return { $or: [own, { [inherits.field]: { $in: ids }, $expr: { $eq: [{ $type: key }, 'missing'] } }] };
}

function buildComparison(value: Expression, { operand }: PathCondition): object {
  if ('exact' in operand)
    return { $in: [value, readExact(operand.exact).map((candidate) => ({ $literal: candidate }))] };
  const bound = 'from' in operand ? { $gte: [value, operand.from] } : { $lte: [value, operand.to] };
  return { $and: [{ $isNumber: value }, bound] };
}
