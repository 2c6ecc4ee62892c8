import { LRUCache } from 'lru-cache';
import type { Database } from '../../db/database.js';
import { type Id, keyOfId } from '../../db/ids.js';
import { findNearestParent } from '../../db/indexes.js';
import { findMany } from '../../db/raw-find.js';
import { buildBelowCondition, isWithin, type Reach } from '../../db/reach.js';
import { type AncestorField, ancestorFields } from '../../resources/event.js';
import { ancestorLevels } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { ListedType } from '../../schema/resource.js';
import type { OperationContext, Store } from '../context.js';

/** Identifiers of the objects above another one. */
export type Ancestors = Partial<Record<AncestorField, string>>;

/** Reports whether two lists of internal ids, from the top, are the same. */
export function isSameChain(before: readonly Id[], now: readonly Id[]): boolean {
  return before.length === now.length && before.every((id, level) => now[level]?.equals(id));
}

const max_cached = 50_000;

/** Reports whether all objects above another one are enabled (reference/streams.md#disabled-devices). */
export type AreAncestorsEnabled = (account: string, ancestors: readonly Id[]) => Promise<boolean>;

interface CachedObject {
  enabled: boolean;
  /** Epoch milliseconds. */
  until: number;
  hierarchyVersion: number;
}

const cache_ms = 2000;

/** Caches `enabled` of the hierarchy. Changes of this process take effect at once, those of others within 2 s. */
export function createEnabledCache({ loader, hierarchy }: Store, clock: () => number): AreAncestorsEnabled {
  const cache = new LRUCache<string, CachedObject>({ max: max_cached });

  return async (account, ancestors) => {
    const hierarchyVersion = hierarchy.of(account);
    const missing: [Id, string][] = [];
    for (const [level, _id] of ancestors.entries()) {
      const cached = cache.get(keyOfId(_id));
      const isFresh = cached !== undefined && cached.until > clock() && cached.hierarchyVersion === hierarchyVersion;
      if (!isFresh) missing.push([_id, ancestorLevels[level]?.plural ?? '']);
      else if (!cached.enabled) return false;
    }
    // most calls find all: they cost no further promises
    if (missing.length === 0) return true;
    const states = await Promise.all(
      missing.map(async ([_id, plural]) => {
        const enabled = (await loader(plural).node(_id))?.enabled === true;
        cache.set(keyOfId(_id), { enabled, until: clock() + cache_ms, hierarchyVersion });
        return enabled;
      }),
    );
    return states.every(Boolean);
  };
}

/** Finds out which objects have only enabled ones above them, without a cache: one query for each level. */
export async function findEnabled(db: Database, objects: readonly { ancestors?: readonly Id[] }[]): Promise<boolean[]> {
  const chains = objects.map(({ ancestors = [] }) => ancestors);
  const enabled = new Set<string>();
  await Promise.all(
    ancestorLevels.map(async ({ plural }, level) => {
      const ids = new Map(chains.flatMap((chain) => chain[level] ?? []).map((_id) => [keyOfId(_id), _id]));
      if (ids.size === 0) return;
      const filter = { _id: { $in: [...ids.values()] }, enabled: true };
      const found = await findMany(db.collection(plural), filter, { projection: { _id: 1 } });
      for (const { _id } of found) enabled.add(keyOfId(_id));
    }),
  );
  return chains.map((chain) => chain.every((_id) => enabled.has(keyOfId(_id))));
}

/** Finds the identifiers of the objects above another one by their internal ids, from the top. */
export type NameAncestors = (ancestors: readonly Id[]) => Promise<Ancestors>;

/** Creates a look-up of identifiers, which never change; objects that are gone have none. */
export function createAncestorNames({ loader }: Pick<Store, 'loader'>): NameAncestors {
  const names = new LRUCache<string, string>({ max: max_cached });

  async function findName(_id: Id, plural: string): Promise<string | undefined> {
    const key = keyOfId(_id);
    const name = names.get(key) ?? (await loader(plural).node(_id))?.id_developer;
    if (name !== undefined) names.set(key, name);
    return name;
  }

  return async (ancestors) => {
    const named: Ancestors = {};
    await Promise.all(
      ancestors.map(async (_id, level) => {
        const field = ancestorFields[level];
        const name = await findName(_id, ancestorLevels[level]?.plural ?? '');
        if (field !== undefined && name !== undefined) named[field] = name;
      }),
    );
    return named;
  };
}

/** Creates a look-up of the identifiers above a device. A device that is gone has none. */
export function createAncestorLookup({ loader }: Store): (account: string, id: string) => Promise<Ancestors> {
  const nameAncestors = createAncestorNames({ loader });
  return async (account, id) => {
    const device = await loader('devices').locate({ account, limit: undefined }, id);
    return nameAncestors(device?.ancestors ?? []);
  };
}

/** Reports whether a device has all the wanted objects above it. */
export function isBelow(ancestors: Ancestors, wanted: Ancestors): boolean {
  return Object.entries(wanted).every(([field, id]) => ancestors[field as AncestorField] === id);
}

/**
 * Adds the condition on `ancestors` for parameters that name an object anywhere above; one that does not exist matches nothing,
 * nor does one beside what the operation is limited to. One above that leaves everything within reach.
 * @param within names the parent whose children are listed: `{field: identifier}`
 */
export async function resolveAncestors(
  { store, account, limit }: Pick<OperationContext, 'store' | 'account' | 'limit'>,
  listed: ListedType,
  request: ListRequest,
  within: Values = {},
): Promise<ListRequest> {
  const nearest = findNearestParent(listed);
  const named = listed.ancestors.flatMap(({ field, plural }) => {
    const ids = new Set([request.params[field], field === nearest ? within[field] : undefined]);
    return [...ids].flatMap((id) => (typeof id === 'string' ? { plural, id } : []));
  });
  if (named.length === 0) return request;
  const anywhere: Reach = { account, limit: undefined };
  const [limitNode, ...nodes] = await Promise.all([
    limit && store.loader(limit.plural).node(limit._id),
    ...named.map(async ({ plural, id }) => ({ plural, node: await store.loader(plural).locate(anywhere, id) })),
  ]);
  const ids: Id[] = [];
  for (const { plural, node } of nodes) {
    const isAboveLimit = node !== undefined && limitNode?.ancestors.some((above) => above.equals(node._id));
    if (isAboveLimit) continue;
    const isKnown = node !== undefined && isWithin(limit, plural, node);
    ids.unshift(isKnown ? node._id : store.db.newId());
  }
  if (ids.length === 0) return request;
  return { ...request, filter: { ...request.filter, ancestors: buildBelowCondition(ids) } };
}
