import type { mongo } from 'mongoose';
import { type Collection, read_limit_ms } from '../db/database.js';
import { isTimeout } from '../db/driver-errors.js';
import type { QueryPlan } from '../db/query-plan.js';
import { findRaw, findSnapshot, type RawCursor, type RawQuery } from '../db/raw-find.js';
import { alarmrule, device } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { joinFilters } from '../schema/filters.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { ListedType, Resource } from '../schema/resource.js';
import { getNumber } from '../serialize/bson.js';
import { resolveAncestors } from './ancestors.js';
import { type OperationContext, readInTurns } from './context.js';
import { deviceListHooks } from './device-lists.js';
import { isExport, readExport } from './exports.js';
import {
  buildListProjection,
  buildRangesAfter,
  formatNext,
  limitBatches,
  readInRanges,
  sortByKeyset,
} from './keyset.js';
import { createOwnedListHooks } from './owned-objects.js';
import type { Bson, ListHooks, Page, PageSummary, PreparedRequest } from './page.js';
import { type ListPlan, planList } from './plan-list.js';
import { selectDevices } from './related-devices.js';
import { assertExists } from './resources.js';

/** Behaviour of the lists of some types, by collection. */
const hooksByType: ReadonlyMap<string, ListHooks> = new Map([
  [device.plural, deviceListHooks],
  [alarmrule.plural, createOwnedListHooks(alarmrule)],
]);

/**
 * Lists the children of one object, which they name as `{field: id}`.
 * @throws AppError notFound (4041) if the parent does not exist
 */
export async function listChildren(
  ctx: OperationContext,
  listed: ListedType,
  request: ListRequest,
  { parent, field, id }: { parent: Resource; field: string; id: string },
): Promise<Page> {
  // an export is read after this has returned; a limit may leave a child, but not its parent
  if (isExport(request) || ctx.limit !== undefined) await assertExists(ctx, parent, id);
  const page = await listResources(ctx, listed, request, { [field]: id });
  if (isExport(request)) return page;
  // a parent that has children exists
  if (page.total_documents === 0) await assertExists(ctx, parent, id);
  return page;
}

/**
 * Looks up what the conditions of a list depend on. @returns the request with complete conditions
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export async function prepareList(
  ctx: OperationContext,
  listed: ListedType,
  asked: ListRequest,
  within: Values = {},
): Promise<PreparedRequest> {
  const { filters = [], ...prepared } = (await hooksByType.get(listed.plural)?.prepare(ctx, asked)) ?? {};
  const placed = await resolveAncestors(ctx, listed, await checkDevice(ctx, listed, asked, within), within);
  const filter = filters.length === 0 ? placed.filter : joinFilters([placed.filter, ...filters]);
  const request: PreparedRequest = { ...placed, ...prepared, filter };
  const { conditions = [] } = request;
  if (conditions.length === 0) return request;
  return { ...request, selected: await selectDevices(ctx, conditions, () => planList(ctx, listed, request, within)) };
}

/** Plans the query of all objects that a request selects. */
export async function planMatches(
  ctx: OperationContext,
  listed: ListedType,
  request: ListRequest,
): Promise<ListPlan & Pick<PreparedRequest, 'conditions'>> {
  const prepared = await prepareList(ctx, listed, request);
  return { ...(await planList(ctx, listed, prepared)), conditions: prepared.conditions };
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

/**
 * Lists one page with the exact total (reference/lists.md#totals). Counts only if the page does not imply the total.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export async function listResources(
  ctx: OperationContext,
  listed: ListedType,
  asked: ListRequest,
  within: Values = {},
): Promise<Page> {
  const { store } = ctx;
  const request = await prepareList(ctx, listed, asked, within);
  const collection = store.db.collection(listed.plural);
  if (isExport(request)) return readExport(ctx, listed, request, within);
  if (request.after !== undefined) return listAfter(ctx, listed, request, within);
  const plan = await planList(ctx, listed, request, within);
  const { filter, sort } = plan;
  if (request.listSorted !== undefined) {
    const page = await request.listSorted(ctx, plan, request);
    return { ...page, batches: readInTurns(ctx, page.batches) };
  }
  const { max, offset } = request;
  const isWalked = plan.scanIndex !== undefined || plan.reachIndex !== undefined;
  const matching = isWalked ? await countAll(ctx, listed, plan) : undefined;
  const query: RawQuery = { filter, ...readOptions(plan.hint), sort, skip: offset, limit: max };
  const { summary, readConcern } =
    request.summarize === true ? await summarize(collection, query, listed, request.params) : {};
  // streams and configs may be large, and the first reply is held in memory as a whole
  const first_batch_size = listed.parentField === undefined ? undefined : 20;
  const shown = { ...query, ...buildListProjection(listed), ...(readConcern && { readConcern }) };
  const indexes = await chooseOrder(ctx, listed, plan, { matching, max });
  const { cursor, first } = await beginPage(
    (options) => findRaw(collection, { ...shown, ...options }, first_batch_size),
    indexes,
  );
  const page = first.done === true ? [] : first.value;
  const rest = cursor.exhausted ? cursor.batches : readInTurns(ctx, cursor.batches);
  const batches = prepend(page, rest);
  const isLastPage = page.length < max && cursor.exhausted;
  if (isLastPage && (page.length > 0 || offset === 0))
    return { total_documents: offset + page.length, batches, summary };
  try {
    const total_documents = matching ?? (await countAll(ctx, listed, plan));
    return { total_documents, batches, summary };
  } catch (error) {
    await cursor.batches.return(undefined);
    throw error;
  }
}

/** Lists the page after a position, at the same cost wherever it is (reference/lists.md#continuation). */
async function listAfter(
  ctx: OperationContext,
  listed: ListedType,
  request: PreparedRequest,
  within: Values,
): Promise<Page> {
  const { max } = request;
  const collection = ctx.store.db.collection(listed.plural);
  const plan = await planList(ctx, listed, sortByKeyset(listed, request), within);
  const total_documents = await countAll(ctx, listed, plan);
  const scans = plan.scanIndex !== undefined && (await keepsMostOfList(ctx, listed, plan, total_documents));
  const options = { ...readOptions(scans ? plan.scanIndex : plan.hint), sort: plan.sort };
  const ranges = buildRangesAfter(listed, { account: ctx.account, position: request.after ?? [], within });
  const read = (projection = buildListProjection(listed)) =>
    readInRanges(ranges, max + 1, (range, limit) =>
      findRaw(collection, { filter: { $and: [plan.filter, range] }, ...options, ...projection, ...limit }),
    );
  const { batches, last } = limitBatches(read(), max);
  const next = () => {
    const bson = last();
    return bson && formatNext(listed, bson);
  };
  const summary =
    request.summarize === true
      ? await summarizePart(read({ projection: { [timePathOf(listed)]: 1 } }), listed, request)
      : undefined;
  return { total_documents, batches: readInTurns(ctx, batches), next, summary };
}

/** Reads the extent of a part of a list that `after` continues. */
async function summarizePart(
  all: AsyncIterable<readonly Bson[]>,
  listed: ListedType,
  { max, params }: ListRequest,
): Promise<PageSummary> {
  const times: (number | undefined)[] = [];
  const [key = '', ...path] = timePathOf(listed).split('.');
  for await (const batch of limitBatches(all, max).batches)
    times.push(...batch.map((bson) => getNumber(bson, key, ...path)));
  return describePage(params, times);
}

function describePage(parameters: Values, times: readonly (number | undefined)[]): PageSummary {
  return { parameters, returned: times.length, at_first: times[0] ?? null, at_last: times.at(-1) ?? null };
}

/** Counts all objects that match, from the cache if it can know. */
function countAll({ store }: OperationContext, { plural }: ListedType, plan: ListPlan): Promise<number> {
  const { filter, hint, scope, examined } = plan;
  return scope === undefined
    ? store.db.collection(plural).countDocuments(filter, readOptions(hint))
    : store.counts.count(plural, scope, { ...readOptions(hint), ...(examined && { examined }) });
}

/**
 * Reads the extent of a page of streams before the page itself, so that a list can be sent while it is read.
 * @returns also the read concern with which the page is the same
 */
async function summarize(
  collection: Collection,
  query: RawQuery,
  listed: ListedType,
  parameters: Values,
): Promise<{ summary: PageSummary; readConcern: RawQuery['readConcern'] }> {
  const snapshot = { level: 'snapshot' } as const;
  const path = timePathOf(listed);
  const projection = { [path]: 1 };
  const { documents, atClusterTime } = await findSnapshot(collection, { ...query, projection, readConcern: snapshot });
  const times = documents.map((document) => {
    const at = path.split('.').reduce<unknown>((value, key) => (value as Values | undefined)?.[key], document);
    return typeof at === 'number' ? at : undefined;
  });
  return { summary: describePage(parameters, times), readConcern: { ...snapshot, atClusterTime } };
}

/** The stored path of `at`. */
function timePathOf({ sorts }: ListedType): string {
  return sorts.get('at')?.[0] ?? '';
}

function readOptions(hint: QueryPlan['hint']): { hint?: mongo.Hint; maxTimeMS: number } {
  return { ...(hint && { hint }), maxTimeMS: read_limit_ms };
}

const sort_threshold = 5000;
/** Time to find a page in the order of the list; then all matches are sorted. */
const walk_ms = 100;
/** A longer page is not walked to: it may come in several replies, of which each would have this limit. */
const max_walked = 200;

/** Chooses the index of a page; `attempt` is one that may turn out to be slower, if the matches come late in it. */
async function chooseOrder(
  ctx: OperationContext,
  listed: ListedType,
  plan: ListPlan,
  { matching, max }: { matching: number | undefined; max: number },
): Promise<{ index: QueryPlan['hint']; attempt?: QueryPlan['hint'] }> {
  const { hint, scanIndex, reachIndex } = plan;
  const attempt = scanIndex ?? reachIndex;
  if (attempt === undefined || matching === undefined) return { index: hint };
  if (scanIndex !== undefined && matching <= sort_threshold) return { index: hint };
  if (scanIndex !== undefined && (await keepsMostOfList(ctx, listed, plan, matching))) return { index: scanIndex };
  return { index: hint, ...(max <= max_walked && { attempt }) };
}

/** Reads the first batch of a page. */
async function beginPage(
  find: (options: ReturnType<typeof readOptions>) => RawCursor,
  { index, attempt }: { index: QueryPlan['hint']; attempt?: QueryPlan['hint'] },
): Promise<{ cursor: RawCursor; first: IteratorResult<readonly Bson[]> }> {
  const begin = async (options: ReturnType<typeof readOptions>) => {
    const cursor = find(options);
    return { cursor, first: await cursor.batches.next() };
  };
  if (attempt === undefined) return begin(readOptions(index));
  try {
    return await begin({ ...readOptions(attempt), maxTimeMS: walk_ms });
  } catch (error) {
    if (!isTimeout(error)) throw error;
    return begin(readOptions(index));
  }
}

/**
 * Reports whether a filter keeps most of a list. If so, scanning the sort index costs only the objects left out;
 * otherwise the matches are found by the filter's index and sorted, which costs in proportion to their number.
 */
async function keepsMostOfList(
  { store, account }: OperationContext,
  { plural }: ListedType,
  { scanIndex }: QueryPlan,
  matching: number,
): Promise<boolean> {
  if (matching <= sort_threshold) return false;
  const total = await store.counts.count(plural, { account }, readOptions(scanIndex));
  return total - matching < matching / 2;
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
