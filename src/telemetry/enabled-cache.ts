import { LRUCache } from 'lru-cache';
import type { Store } from '../repositories/context.js';
import { collectionOf, parentFieldOf } from '../resources/index.js';
import { getBoolean, getString } from '../serialize/bson.js';

/**
 * Reports whether an object and all its ancestors are enabled (reference/streams.md#disabled-devices). A child names it
 * as `{[field]: id}`.
 */
export type AreAncestorsEnabled = (account: string, field: string, id: string) => Promise<boolean>;

interface CachedObject {
  enabled: boolean;
  parent?: { field: string; id: string };
  /** Epoch milliseconds. */
  until: number;
  hierarchyVersion: number;
}

const cache_ms = 2000;
const max_cached = 50_000;

/** Caches `enabled` of the hierarchy. Changes of this process take effect at once, those of others within 2 s. */
export function createEnabledCache({ loader, hierarchy }: Store, clock: () => number): AreAncestorsEnabled {
  const cache = new LRUCache<string, CachedObject>({ max: max_cached });

  async function load(account: string, field: string, id: string): Promise<CachedObject | undefined> {
    const key = `${field} ${id} ${account}`;
    const hierarchyVersion = hierarchy.of(account);
    const cached = cache.get(key);
    if (cached !== undefined && cached.until > clock() && cached.hierarchyVersion === hierarchyVersion) return cached;
    const plural = collectionOf.get(field) ?? '';
    const document = await loader(plural).find(account, id);
    if (document === undefined) return undefined;
    const parentField = parentFieldOf.get(plural);
    const parentId = parentField && getString(document, parentField);
    const object: CachedObject = {
      enabled: getBoolean(document, 'enabled') === true,
      ...(parentField && parentId && { parent: { field: parentField, id: parentId } }),
      until: clock() + cache_ms,
      hierarchyVersion,
    };
    cache.set(key, object);
    return object;
  }

  return async (account, field, id) => {
    for (let ref: CachedObject['parent'] = { field, id }; ref !== undefined; ) {
      const object: CachedObject | undefined = await load(account, ref.field, ref.id);
      if (object === undefined || !object.enabled) return false;
      ref = object.parent;
    }
    return true;
  };
}
