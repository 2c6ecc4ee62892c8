import { read_limit_ms } from '../db/database.js';
import { type CountPlan, planCount } from '../db/query-plan.js';
import type { Grouping } from '../schema/filters.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import { countEach } from './count-each.js';
import { type Counts, toCounts } from './count-rows.js';
import { prepareList } from './lists.js';
import { planList } from './plan-list.js';

interface Row {
  _id: Record<string, unknown>;
  count: number;
  total: number;
}

/** Counts the objects that match by one or two values, of which `max` combinations are returned (reference/lists.md#counts). */
export async function countBy(
  ctx: OperationContext,
  resource: ListedType,
  asked: ListRequest,
  groupings: readonly Grouping[],
): Promise<Counts> {
  const { store, now } = ctx;
  const request = await prepareList(ctx, resource, asked);
  const paths = groupings.flatMap((grouping) => grouping.paths);
  const isWhole = Object.keys(request.filter).length === 0 && request.selected === undefined && ctx.limit === undefined;
  const [single, ...others] = groupings;
  const each = isWhole && single && others.length === 0 ? await countEach(ctx, resource, single) : undefined;
  if (each !== undefined) return toCounts(each, groupings, request.max);
  const plan: CountPlan = isWhole ? planCount(resource, ctx.account, paths) : await planList(ctx, resource, request);
  const { filter, hint, isPartial } = plan;
  const collection = store.db.collection(resource.plural);
  const options = { maxTimeMS: read_limit_ms };
  const group = Object.fromEntries(groupings.map(({ buildExpression }, at) => [at, buildExpression(now)]));
  const pipeline = [
    { $match: filter },
    { $group: { _id: group, count: { $sum: 1 } } },
    ...groupings.flatMap(({ plural }, at) => (plural === undefined ? [] : identify(plural, `_id.${at}`))),
    { $setWindowFields: { output: { total: { $sum: '$count' } } } },
    { $sort: { count: -1, ...Object.fromEntries(groupings.map((_, at) => [`_id.${at}`, 1])) } },
    { $limit: request.max },
  ];
  const rows = await collection.aggregate<Row>(pipeline, { ...options, ...(hint && { hint }) }).toArray();
  const toValues = ({ _id, count }: Pick<Row, '_id' | 'count'>) => ({
    ...Object.fromEntries(groupings.map(({ name }, at) => [name, _id[at]])),
    count,
  });
  const counted = rows[0]?.total ?? 0;
  if (isPartial !== true) return { total_documents: counted, values: rows.map(toValues) };
  // the index leaves out objects without a value
  const { hint: wholeList } = await planList(ctx, resource, request);
  const total_documents = await collection.countDocuments(filter, {
    ...options,
    ...(wholeList && { hint: wholeList }),
  });
  const missing = { _id: { 0: null }, count: total_documents - counted };
  const at = rows.findIndex(({ count }) => count <= missing.count);
  if (missing.count > 0) rows.splice(at < 0 ? rows.length : at, 0, { ...missing, total: 0 });
  return { total_documents, values: rows.slice(0, request.max).map(toValues) };
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
