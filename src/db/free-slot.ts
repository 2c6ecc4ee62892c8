import { AppError } from '../errors.js';
import type { Collection } from './database.js';
import { isDuplicate } from './driver-errors.js';
import type { Id } from './ids.js';
import { findMany } from './raw-find.js';

const max_slots = 100;

/** Chooses a free slot at random, so that concurrent inserts rarely collide. */
export function chooseSlot(taken: ReadonlySet<unknown>, max = max_slots): number | undefined {
  const free = Array.from({ length: max }, (_, slot) => slot).filter((slot) => !taken.has(slot));
  return free[Math.floor(Math.random() * free.length)];
}

/** The error of an insert that finds no free slot. @param described as in `webhooks of an account` */
export function describeFull(described: string, max = max_slots): AppError {
  return new AppError('invalid', { name: `exceeds the ${max} ${described}` });
}

/**
 * Inserts a document with a `slot` that is free among those that match `filter`: a unique index limits their number.
 * @param described as in `webhooks of an account` @param insert gets the ids of the others too
 * @throws AppError invalid (4003) if no slot is free
 */
export async function insertIntoFreeSlot<Inserted>(
  collection: Pick<Collection, 'find'>,
  filter: object,
  described: string,
  insert: (slot: number, others: readonly Id[]) => Promise<Inserted>,
  max = max_slots,
): Promise<Inserted> {
  for (;;) {
    const others = await findMany(collection, filter, { projection: { slot: 1 } });
    const slot = chooseSlot(new Set(others.map((other) => other.slot)), max);
    if (slot === undefined) throw describeFull(described, max);
    const ids = others.map(({ _id }) => _id);
    try {
      return await insert(slot, ids);
    } catch (error) {
      const { keyPattern = {} } = error as { keyPattern?: object };
      if (!isDuplicate(error) || !Object.hasOwn(keyPattern, 'slot')) throw error;
    }
  }
}
