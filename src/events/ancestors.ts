import { LRUCache } from 'lru-cache';
import type { Store } from '../repositories/context.js';
import { type AncestorField, ancestorFields } from '../resources/event.js';
import { collectionOf, device } from '../resources/index.js';
import { getString } from '../serialize/bson.js';

/** Identifiers of the objects above a device. */
export type Ancestors = Partial<Record<AncestorField, string>>;

interface CachedParents {
  parents: Ancestors;
  /** Epoch milliseconds. */
  until: number;
}

const cache_ms = 2000;
const max_cached = 50_000;

/** Creates a look-up of the objects above a device; each level is up to 2 s old. A device that is gone has none. */
export function createAncestorLookup(
  { loader }: Store,
  clock: () => number,
): (account: string, id: string) => Promise<Ancestors> {
  const cache = new LRUCache<string, CachedParents>({ max: max_cached });

  async function loadParents(account: string, plural: string, id: string): Promise<Ancestors> {
    const key = `${plural} ${id} ${account}`;
    const cached = cache.get(key);
    if (cached !== undefined && cached.until > clock()) return cached.parents;
    const document = await loader(plural).find(account, id);
    const parents: Ancestors = {};
    for (const field of ancestorFields) {
      const parent = document && getString(document, field);
      if (parent !== undefined) parents[field] = parent;
    }
    cache.set(key, { parents, until: clock() + cache_ms });
    return parents;
  }

  return async (account, id) => {
    const ancestors: Ancestors = {};
    let level: Ancestors = await loadParents(account, device.plural, id);
    while (Object.keys(level).length > 0) {
      Object.assign(ancestors, level);
      const above = Object.entries(level).map(([field, parent]) =>
        loadParents(account, collectionOf.get(field) ?? '', parent),
      );
      level = Object.assign({}, ...(await Promise.all(above)));
    }
    return ancestors;
  };
}

/** Reports whether a device has all the wanted objects above it. */
export function isBelow(ancestors: Ancestors, wanted: Ancestors): boolean {
  return Object.entries(wanted).every(([field, id]) => ancestors[field as AncestorField] === id);
}
