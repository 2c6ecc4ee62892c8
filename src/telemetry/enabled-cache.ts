import type { Database } from '../db/database.js';
import { findResource } from '../repositories/resources.js';
import { collectionOf, parentFieldOf } from '../resources/index.js';

/** Whether everything above something is enabled (contract 8). `field` and `id` name what is right above it. */
export type AreAncestorsEnabled = (account: string, field: string, id: string) => Promise<boolean>;

interface Known {
  enabled: boolean;
  above?: { field: string; id: string };
  /** Epoch milliseconds. */
  until: number;
  epoch: number;
}

const cache_ms = 2000;
const cache_size = 50_000;

/**
 * Remembers for a moment what is enabled: a change made by this process counts at once (`db.epoch`), one made by
 * another within 2 s.
 */
export function createEnabledCache(db: Database, clock: () => number): AreAncestorsEnabled {
  const cache = new Map<string, Known>();

  async function lookUp(account: string, field: string, id: string): Promise<Known | undefined> {
    const key = `${field} ${id}`;
    const cached = cache.get(key);
    if (cached !== undefined && cached.until > clock() && cached.epoch === db.epoch()) return cached;
    const epoch = db.epoch();
    const plural = collectionOf.get(field) ?? '';
    const upperField = parentFieldOf.get(plural);
    const found = await findResource(db, plural, account, id);
    if (found === undefined) return undefined;
    const upper = upperField === undefined ? undefined : found[upperField];
    const known: Known = {
      enabled: found.enabled === true,
      ...(upperField !== undefined && typeof upper === 'string' && { above: { field: upperField, id: upper } }),
      until: clock() + cache_ms,
      epoch,
    };
    cache.set(key, known);
    if (cache.size > cache_size) cache.delete(cache.keys().next().value ?? '');
    return known;
  }

  return async (account, field, id) => {
    for (let at: { field: string; id: string } | undefined = { field, id }; at !== undefined; ) {
      const known: Known | undefined = await lookUp(account, at.field, at.id);
      if (known === undefined || !known.enabled) return false;
      at = known.above;
    }
    return true;
  };
}
