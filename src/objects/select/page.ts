import { isTimeout } from '../../db/driver-errors.js';
import { countFitting, findSnapshot, type RawCursor, type RawQuery } from '../../db/raw-find.js';
import type { Values } from '../../schema/fields.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import { type OperationContext, readInTurns } from '../context.js';
import type { Bson, Page, PageSummary } from '../page.js';
import { formatNext, limitToPage } from './keyset.js';
import { buildQuery, count, findInRanges, readOptions } from './read.js';
import type { ObjectSelection } from './selection.js';

type Hint = ObjectSelection['hint'];

/** Reads one page with the exact total (reference/lists.md#totals). Counts only if the page does not imply the total. */
export async function readPage(ctx: OperationContext, selection: ObjectSelection, request: ListRequest): Promise<Page> {
  const { listed, hint, readInOrder, scanIndex, reachIndex } = selection;
  const { max, offset, after } = request;
  const isCounted = [readInOrder, after, scanIndex, reachIndex].some((each) => each !== undefined);
  const matching = isCounted ? await count(ctx, selection) : undefined;
  if (readInOrder !== undefined && matching !== undefined) {
    const { batches } = limitToPage(readInOrder(ctx, selection, matching), request);
    return { total_documents: matching, batches: readInTurns(ctx, batches) };
  }
  const query: RawQuery = { ...buildQuery(selection, request), ...readOptions(hint) };
  const { summary, readConcern } = request.summarize === true ? await summarize(ctx, selection, query, request) : {};
  // one more than a page shows that the list continues
  const shown = { ...query, ...(after && { limit: max + 1 }), ...(readConcern && { readConcern }) };
  // the first reply is held in memory as a whole: streams and configs may be large, others are as large as the last time
  const listKey = `${listed.plural} ${ctx.account}`;
  const first_batch_size = listed.parentField === undefined ? ctx.store.fittingReplies.get(listKey) : 20;
  const hints = await chooseHints(ctx, selection, { matching, max });
  const { cursor, page } = await beginPage(hints, (options) =>
    findInRanges(ctx, selection, { ...shown, ...options }, first_batch_size),
  );
  if (page.length > 0) ctx.store.fittingReplies.set(listKey, countFitting(page));
  const all = prepend(page, cursor.exhausted ? cursor.batches : readInTurns(ctx, cursor.batches));
  if (after !== undefined && matching !== undefined) {
    const { batches, last } = limitToPage(all, { offset: 0, max }, true);
    return { total_documents: matching, batches, next: () => formatNext(listed, last()), summary };
  }
  const isLastPage = page.length < max && cursor.exhausted && (page.length > 0 || offset === 0);
  const close = async (error: unknown) => {
    await cursor.batches.return(undefined);
    throw error;
  };
  const total = isLastPage ? offset + page.length : (matching ?? (await count(ctx, selection).catch(close)));
  return { total_documents: total, batches: all, summary };
}

/**
 * Reads the extent of a page of streams before the page itself, so that a list can be sent while it is read.
 * @returns also the read concern with which the page is the same
 */
async function summarize(
  { store }: OperationContext,
  { listed, ranges = [] }: ObjectSelection,
  query: RawQuery,
  { params: parameters }: ListRequest,
): Promise<{ summary: PageSummary; readConcern: RawQuery['readConcern'] }> {
  const snapshot = { level: 'snapshot' } as const;
  const path = listed.sorts.get('at')?.[0] ?? '';
  const filter = { $and: [query.filter, ...ranges] };
  const shown = { ...query, filter, projection: { [path]: 1 }, readConcern: snapshot };
  const { documents, atClusterTime } = await findSnapshot(store.db.collection(listed.plural), shown);
  const times = documents.map((document) => {
    const at = path.split('.').reduce<unknown>((value, key) => (value as Values | undefined)?.[key], document);
    return typeof at === 'number' ? at : null;
  });
  const summary = { parameters, returned: times.length, at_first: times[0] ?? null, at_last: times.at(-1) ?? null };
  return { summary, readConcern: { ...snapshot, atClusterTime } };
}

const sort_threshold = 5000;
/** Time to find a page in the order of the list; then all matches are sorted. */
const walk_ms = 100;
/** A longer page is not walked to: it may come in several replies, of which each would have this limit. */
const max_walked = 200;

/** Chooses the index of a page, after one that may turn out to be slower, if the matches come late in it. */
async function chooseHints(
  ctx: OperationContext,
  { listed, hint, scanIndex, reachIndex }: ObjectSelection,
  { matching, max }: { matching: number | undefined; max: number },
): Promise<Hint[]> {
  const attempt = scanIndex ?? reachIndex;
  if (attempt === undefined || matching === undefined) return [hint];
  if (scanIndex !== undefined) {
    if (matching <= sort_threshold) return [hint];
    // if a filter keeps most of a list, scanning the sort index costs only the objects left out; otherwise the matches are
    // found by the filter's index and sorted, which costs in proportion to their number
    const total = await ctx.store.counts.count(listed.plural, { account: ctx.account }, readOptions(scanIndex));
    if (total - matching < matching / 2) return [scanIndex];
  }
  return max <= max_walked ? [attempt, hint] : [hint];
}

/** Reads the first batch of a page, by the last index if another takes long. */
async function beginPage(
  [hint, ...others]: readonly Hint[],
  find: (options: ReturnType<typeof readOptions>) => RawCursor,
): Promise<{ cursor: RawCursor; page: readonly Bson[] }> {
  const cursor = find({ ...readOptions(hint), ...(others.length > 0 && { maxTimeMS: walk_ms }) });
  try {
    const first = await cursor.batches.next();
    return { cursor, page: first.done === true ? [] : first.value };
  } catch (error) {
    if (others.length === 0 || !isTimeout(error)) throw error;
    return beginPage(others, find);
  }
}

/** Continues with `rest` after `page`; closes the cursor if the list is not read to its end. */
async function* prepend(
  page: readonly Bson[],
  rest: AsyncIterableIterator<readonly Bson[]>,
): AsyncGenerator<readonly Bson[]> {
  try {
    if (page.length > 0) yield page;
    yield* rest;
  } finally {
    await rest.return?.();
  }
}
