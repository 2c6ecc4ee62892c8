import { findRaw, type RawQuery } from '../db/raw-find.js';
import { readAhead } from '../lib/batches.js';
import type { Values } from '../schema/fields.js';
import { isRowFormat, type ListRequest } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import { type OperationContext, readInTurns } from './context.js';
import { buildListProjection, buildRangesAfter, readInRanges, sortByKeyset } from './keyset.js';
import type { Page, PreparedRequest } from './page.js';
import { planList } from './plan-list.js';

/** Documents of the first reply, which may be large and is held in memory as a whole. */
const first_batch_size = 101;
/** Time limit of one command: a filter that keeps little may examine millions of objects for a batch. */
const command_limit_ms = 600_000;

/** Reports whether a list is sent as rows, without the limits of a page (reference/exports.md#formats). */
export function isExport({ output }: ListRequest): boolean {
  return output !== undefined && isRowFormat(output.format);
}

/**
 * Reads all objects that match, or the first `max` of them, as fast as the client takes them.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export async function readExport(
  ctx: OperationContext,
  listed: ListedType,
  request: PreparedRequest,
  within: Values,
): Promise<Page> {
  const { after, offset, max } = request;
  const collection = ctx.store.db.collection(listed.plural);
  const plan = await planList(ctx, listed, after === undefined ? request : sortByKeyset(listed, request), within);
  if (after === undefined && request.listSorted !== undefined) {
    const page = await request.listSorted(ctx, plan, request);
    return { ...page, batches: readAhead(withShares(ctx, page.batches)) };
  }
  const shared: Omit<RawQuery, 'filter'> = {
    ...buildListProjection(listed),
    sort: plan.sort,
    skip: offset,
    noCursorTimeout: true,
    ...(plan.hint && { hint: plan.hint }),
  };
  const ranges = buildRangesAfter(listed, { account: ctx.account, position: after ?? [], within });
  // a search may take long after its client has left
  const limits = { socketTimeoutMS: command_limit_ms, signal: ctx.caller?.left };
  const batches = readInRanges(ranges, max, (range, limit) => {
    const filter = { $and: [plan.filter, range] };
    return findRaw(collection, { ...shared, filter, ...limit }, first_batch_size, limits);
  });
  return { total_documents: 0, batches: readAhead(withShares(ctx, batches)) };
}

/** @throws AppError overloaded (5033) beyond the exports of the process or the share of the account */
async function* withShares<T>(ctx: OperationContext, batches: AsyncIterable<T>): AsyncGenerator<T> {
  const release = ctx.store.exports.take(ctx.account);
  try {
    yield* readInTurns(ctx, batches);
  } finally {
    release();
  }
}
