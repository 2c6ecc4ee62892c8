import type { Id } from '../db/ids.js';
import type { Store } from './context.js';

/** An object that a change of many objects has claimed (reference/bulk.md#concurrency). */
export interface ClaimedObject {
  _id: Id;
  /** The piece of the journal that is going to change the object. */
  claim: Id;
}

/** Condition of every other change and deletion; it holds for objects without the field too. */
export const unclaimed = { claim: null };

/**
 * Settles the claims on the objects that match: a confirmed change is carried out on them, another one withdrawn or awaited.
 * @returns whether there were any, so that the caller tries again
 */
export async function settleClaims(store: Store, plural: string, filter: object): Promise<boolean> {
  const claimed = { ...filter, claim: { $ne: null } };
  const found = await store.db
    .collection(plural)
    .find(claimed, { projection: { claim: 1 } })
    .toArray();
  for (const { _id, claim } of found) await store.settleClaim(store, plural, { _id, claim: claim as Id });
  return found.length > 0;
}

/**
 * Decides after a change or deletion that no object took: settles the claims on the objects that match. A claim may be gone by
 * then, so that it was the cause if an object with the precondition is there.
 * @param precondition of the change, in addition to `unclaimed` @returns whether the caller tries again
 */
export async function canRetry(store: Store, plural: string, filter: object, precondition = {}): Promise<boolean> {
  if (await settleClaims(store, plural, filter)) return true;
  const found = await store.db.collection(plural).findOne({ ...filter, ...precondition }, { projection: { _id: 1 } });
  return found !== null;
}
