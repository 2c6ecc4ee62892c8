import { AppError } from '../errors.js';
import { type Collection, read_limit_ms } from './database.js';
import { isDuplicate } from './driver-errors.js';

const max_slots = 100;

/**
 * Inserts a document with a `slot` that is free among those that match `filter`: a unique index limits their number.
 * @param described as in `webhooks of an account` @throws AppError invalid (4003) if no slot is free
 */
export async function insertIntoFreeSlot<Inserted>(
  collection: Pick<Collection, 'find'>,
  filter: object,
  described: string,
  insert: (slot: number) => Promise<Inserted>,
  max = max_slots,
): Promise<Inserted> {
  for (;;) {
    const options = { projection: { _id: 0, slot: 1 }, maxTimeMS: read_limit_ms };
    const taken = new Set((await collection.find(filter, options).toArray()).map(({ slot }) => slot));
    const free = Array.from({ length: max }, (_, slot) => slot).filter((slot) => !taken.has(slot));
    // at random, so that concurrent inserts rarely collide
    const slot = free[Math.floor(Math.random() * free.length)];
    if (slot === undefined) throw new AppError('invalid', { name: `exceeds the ${max} ${described}` });
    try {
      return await insert(slot);
    } catch (error) {
      const { keyPattern = {} } = error as { keyPattern?: object };
      if (!isDuplicate(error) || !Object.hasOwn(keyPattern, 'slot')) throw error;
    }
  }
}
