import { read_limit_ms } from '../db/database.js';
import { type IndexCandidate, planQuery, type QueryPlan, type SelectingRequest } from '../db/query-plan.js';
import type { Values } from '../schema/fields.js';
import type { ListedType } from '../schema/resource.js';
import type { OperationContext } from './context.js';

/** With an index of no more matches the search ends. */
const few = 100;
/** So many matches are sorted sooner than a page is found in order. */
const sorted_soon = 5000;
/** Matches of a range are counted up to here. */
const max_counted = 100_000;

/** A plan with the index that is read. */
export interface ListPlan extends Omit<QueryPlan, 'candidates'> {
  /** If `hint` has other objects than those in reach: their index, whose order is that of the list. */
  reachIndex?: QueryPlan['hint'];
  /** Objects in `hint`, if it does not have all conditions; ranges count up to a limit. */
  examined?: number;
}

/**
 * Plans the query of a list. Of indexes that each have a part of the conditions, it takes the one with the fewest matches: the
 * database would try each for a third of the collection, and remember the winner for other values.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export async function planList(
  ctx: OperationContext,
  listed: ListedType,
  request: SelectingRequest,
  within: Values = {},
): Promise<ListPlan> {
  const { candidates = [], ...plan } = planQuery(listed, ctx, request, within);
  if (candidates.length === 0) return plan;
  const { hint, min } = await findNarrowest(ctx, listed, candidates);
  const reachIndex = candidates.find(({ conditions }) => 'ancestors' in conditions)?.hint;
  const isWalked = plan.scanIndex === undefined && reachIndex !== hint && min > sorted_soon;
  return { ...plan, examined: min, ...(hint && { hint }), ...(isWalked && reachIndex && { reachIndex }) };
}

async function findNarrowest(
  { store }: OperationContext,
  { plural }: ListedType,
  candidates: readonly IndexCandidate[],
): Promise<{ hint: QueryPlan['hint']; min: number }> {
  let narrowest = candidates[0]?.hint;
  let min = Number.POSITIVE_INFINITY;
  if (candidates.length === 1) return { hint: narrowest, min: 0 };
  // totals of equalities are cached
  for (const { hint, conditions, isExact } of candidates.toSorted((a, b) => Number(b.isExact) - Number(a.isExact))) {
    const options = { hint, maxTimeMS: read_limit_ms };
    const matching = isExact
      ? await store.counts.estimate(plural, conditions, options)
      : await store.db.collection(plural).countDocuments(conditions, { ...options, limit: Math.min(min, max_counted) });
    if (matching < min) [narrowest, min] = [hint, matching];
    if (min <= few) break;
  }
  return { hint: narrowest, min };
}
