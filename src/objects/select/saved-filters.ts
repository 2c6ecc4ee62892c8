import type { mongo } from 'mongoose';
import type { StoredObject } from '../../db/database.js';
import { keyOfId } from '../../db/ids.js';
import { findAll } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import { ancestorFields } from '../../resources/event.js';
import { device, savedFilter } from '../../resources/index.js';
import { describeFaults, parseSavedQuery } from '../../resources/saved-filter.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { PathCondition } from '../../schema/path-filters.js';
import type { OperationContext } from '../context.js';
import { type Ancestors, isBelow, resolveAncestors } from '../tree/ancestors.js';
import { assertDeclared, prepareConditions } from '../values/conditions.js';
import { assertUnambiguous, type LookUpScope } from './path-filters.js';
import { selectMatching } from './related-devices.js';

/** The part of an operation that a look-up of devices by a saved filter needs. */
export type FilterScope = LookUpScope & Pick<OperationContext, 'now' | 'limit'>;

/** A moment in the past: a time of the database, and what was above the devices then. */
interface FilterMoment {
  atClusterTime?: mongo.Timestamp | undefined;
  ancestors?: Ancestors;
}

/**
 * Loads a saved filter as a request of the list of devices.
 * @throws AppError badParameter (4004), forbidden (4031) for limited keys, which may not know the filters of the account
 */
export async function loadSavedFilter(
  { store, account, now, limit, readConcern }: FilterScope,
  id: string,
): Promise<ListRequest> {
  if (limit !== undefined) throw new AppError('forbidden');
  const [stored] = await findAll<StoredObject & { query: string }>(store.db.collection(savedFilter.plural), {
    filter: { account, id_developer: id },
    projection: { query: 1 },
    readConcern,
  });
  if (stored === undefined) throw new AppError('badParameter', { filter: 'does not exist' });
  try {
    return parseSavedQuery(stored.query, now);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new AppError('badParameter', { filter: describeFaults(error) });
  }
}

/**
 * Finds which of these devices match a saved filter, now or at an earlier moment: none if there is no such filter, or what it
 * compares is not declared any more. @param ids identifiers
 */
export async function findMatchingDevices(
  ...[scope, filter, ids, moment]: Parameters<typeof matchDevices>
): Promise<ReadonlySet<string>> {
  return matchDevices(scope, filter, ids, moment).catch((error: unknown) => {
    if (error instanceof AppError && error.failure === 'badParameter') return new Set<string>();
    throw error;
  });
}

async function matchDevices(
  present: FilterScope,
  filter: string,
  ids: readonly string[],
  { atClusterTime, ancestors }: FilterMoment = {},
): Promise<ReadonlySet<string>> {
  const { store, account } = present;
  const readConcern = atClusterTime && ({ level: 'snapshot', atClusterTime } as const);
  const scope = { ...present, readConcern };
  const request = await loadSavedFilter(scope, filter);
  if (ancestors !== undefined && !isPlacedBelow(ancestors, request)) return new Set();
  const placed = ancestors === undefined ? await resolveAncestors(scope, device, request) : request;
  const { filters, related } = await prepareConditions(scope, request).catch(rethrowNamed);
  const matching = await findAll<StoredObject>(store.db.collection(device.plural), {
    filter: { $and: [{ account, id_developer: { $in: ids } }, toExactDeadlines(placed.filter), ...filters] },
    projection: { id_developer: 1 },
    hint: { account: 1, id_developer: 1 },
    readConcern,
  });
  const found = matching.map(({ _id }) => _id);
  const selected = new Set((await selectMatching(scope, related, found)).map(keyOfId));
  return new Set(matching.flatMap(({ _id, id_developer }) => (selected.has(keyOfId(_id)) ? [id_developer] : [])));
}

function isPlacedBelow(ancestors: Ancestors, { params }: ListRequest): boolean {
  const wanted = ancestorFields.flatMap((field) => (params[field] === undefined ? [] : [[field, params[field]]]));
  return isBelow(ancestors, Object.fromEntries(wanted) as Ancestors);
}

/** Compares the deadlines themselves, as their bounds are exact only after `refreshBounds`. */
function toExactDeadlines(filter: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(filter).map(([path, condition]) => {
      if (path === '$and') return [path, (condition as Record<string, unknown>[]).map(toExactDeadlines)];
      return [path.replace(/^(stream|status)_safe_until$/, '$1_due_at'), condition];
    }),
  );
}

/** @throws AppError badParameter (4004) without the filter, or if its paths are declared no more, or ambiguous */
export async function assertFilterApplies(scope: FilterScope, id: string): Promise<void> {
  const { paths } = await loadSavedFilter(scope, id);
  await assertPathsApply(scope, paths).catch(rethrowNamed);
}

/** @throws AppError badParameter (4004) for paths of no measure with `filter`, and for ambiguous ones */
export async function assertPathsApply(scope: FilterScope, paths: readonly PathCondition[] = []): Promise<void> {
  await assertUnambiguous(scope, paths);
  await assertDeclared(scope, paths);
}

/** @throws the error, naming `filter` instead of what the filter holds */
export function rethrowNamed(error: unknown): never {
  if (!(error instanceof AppError) || Object.keys(error.details).length === 0) throw error;
  throw new AppError(error.failure, { filter: describeFaults(error) });
}
