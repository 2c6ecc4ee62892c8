import { findCovering, isWholeList } from '../db/query-plan.js';
import type { Grouping } from '../schema/filters.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import { countEach } from './count-each.js';
import { type Counts, toCounts } from './count-rows.js';
import { compile } from './select/compile.js';
import { count, readOptions } from './select/read.js';

interface Row {
  _id: Record<string, unknown>;
  count: number;
  total: number;
}

/** Counts the objects that match by one or two values, of which `max` combinations are returned (reference/lists.md#counts). */
export async function countBy(
  ctx: OperationContext,
  listed: ListedType,
  request: ListRequest,
  groupings: readonly Grouping[],
): Promise<Counts> {
  const { max } = request;
  const selection = await compile(ctx, listed, request);
  const isWhole = isWholeList(selection);
  const [single, ...others] = groupings;
  const each = isWhole && single && others.length === 0 ? await countEach(ctx, listed, single) : undefined;
  if (each !== undefined) return toCounts(each, groupings, max);
  const covering = isWhole
    ? findCovering(
        listed,
        groupings.flatMap(({ paths }) => paths),
      )
    : undefined;
  const group = Object.fromEntries(groupings.map(({ buildExpression }, at) => [at, buildExpression(ctx.now)]));
  const pipeline = [
    { $match: selection.filter },
    { $group: { _id: group, count: { $sum: 1 } } },
    ...groupings.flatMap(({ plural }, at) => (plural === undefined ? [] : identify(plural, `_id.${at}`))),
    { $setWindowFields: { output: { total: { $sum: '$count' } } } },
    { $sort: { count: -1, ...Object.fromEntries(groupings.map((_, at) => [`_id.${at}`, 1])) } },
    { $limit: max },
  ];
  const options = readOptions(isWhole ? covering?.key : selection.hint);
  const rows = await ctx.store.db.collection(listed.plural).aggregate<Row>(pipeline, options).toArray();
  const values = rows.map(({ _id, count: number }) => ({ values: groupings.map((_, at) => _id[at]), count: number }));
  const counted = rows[0]?.total ?? 0;
  // the index leaves out objects without a value
  const total_documents = covering?.partialFilterExpression === undefined ? counted : await count(ctx, selection);
  values.push({ values: [null], count: total_documents - counted });
  return { ...toCounts(values, groupings, max), total_documents };
}

/** Replaces an internal id by the identifier of its object. */
function identify(plural: string, path: string): object[] {
  const pipeline = [{ $project: { id_developer: 1 } }];
  return [
    { $lookup: { from: plural, localField: path, foreignField: '_id', pipeline, as: 'above' } },
    { $set: { [path]: { $ifNull: [{ $first: '$above.id_developer' }, null] } } },
    { $unset: 'above' },
  ];
}
