import { read_limit_ms } from '../../db/database.js';
import { planQuery, type QueryPlan } from '../../db/query-plan.js';
import { device } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import { joinFilters } from '../../schema/filters.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { ListedType } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import { resolveAncestors } from '../tree/ancestors.js';
import { hooksOf } from '../type-hooks.js';
import { buildRangesAfter, sortByKeyset } from './keyset.js';
import { selectDevices } from './related-devices.js';
import type { ObjectSelection } from './selection.js';

/**
 * Compiles a request: looks up what its conditions depend on, and plans the query.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export async function compile(
  ctx: OperationContext,
  listed: ListedType,
  request: ListRequest,
  within: Values = {},
): Promise<ObjectSelection> {
  const { filters = [], related = [], parts, readInOrder } = (await hooksOf(listed).select?.(ctx, request)) ?? {};
  const placed = await resolveAncestors(ctx, listed, await checkDevice(ctx, listed, request, within), within);
  const filter = joinFilters([placed.filter, ...filters]);
  const { after, sort } = request;
  const ordered = after === undefined ? placed : sortByKeyset(listed, placed);
  const plan = planQuery(listed, ctx, { ...ordered, filter }, within);
  const planned = parts === undefined ? plan : { filter: plan.filter, sort: { _id: sort.direction } };
  const ranges = after?.length ? buildRangesAfter(listed, { account: ctx.account, position: after, within }) : parts;
  const shared = { listed, related, unselected: plan.filter, ranges, readInOrder };
  const choose = () => chooseNarrowest(ctx, listed, planned);
  if (related.length === 0) return { ...(await choose()), ...shared };
  const selected = await selectDevices(ctx, related, choose);
  const both = { $and: [{ _id: { $in: selected } }, plan.filter] };
  return { ...shared, selected, filter: both, sort: planned.sort, hint: { _id: 1 } };
}

/** Lets a limited operation list what is below a device only if it may see the device. */
async function checkDevice(
  ctx: OperationContext,
  { parentField }: ListedType,
  request: ListRequest,
  within: Values,
): Promise<ListRequest> {
  const id = within.device ?? request.params.device;
  if (ctx.limit === undefined || parentField !== 'device' || typeof id !== 'string') return request;
  if ((await ctx.store.loader(device.plural).locate(ctx, id)) !== undefined) return request;
  return { ...request, filter: { ...request.filter, device: { $in: [] } } };
}

/** With an index of no more matches the search ends. */
const few = 100;
/** So many matches are sorted sooner than a page is found in order. */
const sorted_soon = 5000;
/** Matches of a range are counted up to here. */
const max_counted = 100_000;

/**
 * Of indexes that each have a part of the conditions, chooses the one with the fewest matches: the database would try each for
 * a third of the collection, and remember the winner for other values.
 */
async function chooseNarrowest(
  { store }: OperationContext,
  { plural }: ListedType,
  { candidates = [], ...plan }: QueryPlan,
): Promise<Omit<QueryPlan, 'candidates'> & Pick<ObjectSelection, 'reachIndex' | 'examined'>> {
  const [first, second] = candidates;
  if (first === undefined) return plan;
  if (second === undefined) return { ...plan, examined: 0, hint: first.hint };
  let narrowest = first.hint;
  let min = Number.POSITIVE_INFINITY;
  // totals of equalities are cached
  for (const { hint, conditions, isExact } of candidates.toSorted((a, b) => Number(b.isExact) - Number(a.isExact))) {
    const options = { hint, maxTimeMS: read_limit_ms };
    const matching = isExact
      ? await store.counts.estimate(plural, conditions, options)
      : await store.db.collection(plural).countDocuments(conditions, { ...options, limit: Math.min(min, max_counted) });
    if (matching < min) [narrowest, min] = [hint, matching];
    if (min <= few) break;
  }
  const reachIndex = candidates.find(({ conditions }) => 'ancestors' in conditions)?.hint;
  const isWalked = plan.scanIndex === undefined && reachIndex !== narrowest && min > sorted_soon;
  return { ...plan, examined: min, hint: narrowest, ...(isWalked && reachIndex && { reachIndex }) };
}
