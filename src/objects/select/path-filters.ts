import { findAll, hasMatch, type RawQuery } from '../../db/raw-find.js';
import { createFieldErrors, throwIfAny } from '../../errors.js';
import { device } from '../../resources/index.js';
import { model } from '../../resources/model.js';
import { bySuffixedPath } from '../../resources/suffixed-paths.js';
import { type DataPath, formatPointer, isTooDeep, spellingsOf } from '../../schema/data-path.js';
import { type PathCondition, readExact } from '../../schema/path-filters.js';
import type { ListedType } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';

/** The operation that a look-up is for. @param readConcern reads at a time of the database instead of now */
export type LookUpScope = Pick<OperationContext, 'store' | 'account'> & Pick<RawQuery, 'readConcern'>;
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
  { store, account, readConcern }: LookUpScope,
  { inherits }: ListedType,
  condition: PathCondition,
): Promise<Record<string, unknown>> {
  const { member, path } = condition;
  const matches = buildComparison(buildPathExpression(`$${member}`, path), condition);
  const own = { $expr: matches };
  if (inherits?.member !== member) return own;
  const sources = await findAll(store.db.collection(inherits.plural), {
    filter: { account, $expr: matches },
    projection: { id_developer: 1 },
    readConcern,
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

/**
 * Asserts that no suffix of a parameter may belong to a key: `valid_from` is the lower bound of `valid` only as long as
 * no properties, by an index, and no measure have a key `valid_from`. @throws AppError badParameter (4004)
 */
export async function assertUnambiguous(
  { store: { db }, account }: LookUpScope,
  paths: readonly PathCondition[] = [],
): Promise<void> {
  const faults = createFieldErrors();
  for (const { param, member, path, operand, literal } of paths) {
    if (literal === undefined) continue;
    const measured = { account, 'measures.path': { $in: spellingsOf(literal) } };
    const stored = { account, suffixed_paths: formatPointer(literal) };
    const hint = bySuffixedPath.key;
    const found = await (member === 'latest'
      ? hasMatch(db.collection(model.plural), measured)
      : Promise.all([device, model].map(({ plural }) => hasMatch(db.collection(plural), stored, { hint }))));
    if (![found].flat().includes(true)) continue;
    const meaning = 'from' in operand ? 'the lower bound of' : 'to' in operand ? 'the upper bound of' : 'exactly';
    faults[param] = `may mean the path ${param}, which ${param}_eq compares, or ${meaning} ${member}.${path.text}`;
  }
  throwIfAny('badParameter', faults);
}
