import { read_limit_ms, type StoredObject } from '../db/database.js';
import { isDuplicate, retryOnce } from '../db/driver-errors.js';
import type { Resource } from '../schema/resource.js';
import { buildSearchText } from '../schema/search.js';
import type { OperationContext, Store } from './context.js';

/** The last number used for objects of one name. */
interface Counter {
  _id: string;
  last: number;
}

/** Inserts a new object under a given identifier. @throws the driver's error if it is taken */
export async function insertAs(
  { store }: OperationContext,
  { plural }: Resource,
  document: StoredObject,
  id: string,
): Promise<string> {
  document.id_developer = id;
  document.search_text = buildSearchText(document);
  await store.loader(plural).insert(document);
  return id;
}

/**
 * Inserts a new object under `name@account`, or if names may repeat under the next free of `name-2@account`,
 * `name-3@account`, … (reference/identifiers.md#names). The unique index decides races. @returns the id_developer
 */
export async function insertWithIdentifier(
  ctx: OperationContext,
  { plural, uniqueNames }: Resource,
  document: StoredObject,
): Promise<string> {
  const name: NumberedName = { plural, name: String(document.name), account: ctx.account };
  const insert = async (id: string) => {
    document.id_developer = id;
    document.search_text = buildSearchText(document);
    await ctx.store.loader(plural).insert(document);
    return id;
  };
  try {
    return await insert(`${name.name}@${name.account}`);
  } catch (error) {
    if (uniqueNames || !isDuplicate(error)) throw error;
  }
  let number = await findLowFree(ctx.store, name);
  for (let last = 1; ; ) {
    number ??= await takeNumber(ctx.store, name, last);
    try {
      return await insert(identifierOf(name, number));
    } catch (error) {
      if (!isDuplicate(error)) throw error;
    }
    last = await findLastUsed(ctx.store, name, number);
    number = undefined;
  }
}

/** A name that several objects of a collection share. */
interface NumberedName {
  plural: string;
  name: string;
  account: string;
}

function identifierOf({ name, account }: NumberedName, number: number): string {
  return `${name}-${number}@${account}`;
}

/** Numbers up to this one are reused after a delete; higher ones are not. */
const max_low_number = 64;

/** @returns the smallest free number, or undefined if all low ones are in use */
async function findLowFree({ db }: Store, name: NumberedName): Promise<number | undefined> {
  const numbers = Array.from({ length: max_low_number - 1 }, (_, index) => index + 2);
  const filter = { account: name.account, id_developer: { $in: numbers.map((number) => identifierOf(name, number)) } };
  const options = { projection: { _id: 0, id_developer: 1 }, maxTimeMS: read_limit_ms };
  const taken = await db.collection(name.plural).find(filter, options).toArray();
  const used = new Set(taken.map(({ id_developer }) => id_developer));
  return numbers.find((number) => !used.has(identifierOf(name, number)));
}

/** Takes the next number from a counter, at constant cost. */
async function takeNumber({ db }: Store, { plural, name, account }: NumberedName, last: number): Promise<number> {
  const counters = db.collection<Counter>('identifier_counters');
  const next = { $add: [{ $max: [{ $ifNull: ['$last', 1] }, last] }, 1] };
  const take = () =>
    counters.findOneAndUpdate({ _id: `${plural} ${name}@${account}` }, [{ $set: { last: next } }], {
      upsert: true,
      returnDocument: 'after',
      writeConcern: { w: 1 },
    });
  // concurrent first calls may both insert the counter
  const counter = await retryOnce(take).catch((error: unknown) => {
    if (isDuplicate(error)) return take();
    throw error;
  });
  return counter?.last ?? last + 1;
}

/** @returns the last number in use from `from` on without a large gap, found in a logarithmic number of reads */
async function findLastUsed({ db }: Store, name: NumberedName, from: number): Promise<number> {
  const collection = db.collection(name.plural);
  const options = { projection: { _id: 1 }, maxTimeMS: read_limit_ms };
  const isUsed = async (number: number) =>
    (await collection.findOne({ account: name.account, id_developer: identifierOf(name, number) }, options)) !== null;
  let step = 1;
  while (await isUsed(from + step)) step *= 2;
  let used = from + Math.floor(step / 2);
  let free = from + step;
  while (free - used > 1) {
    const middle = Math.floor((used + free) / 2);
    if (await isUsed(middle)) used = middle;
    else free = middle;
  }
  return used;
}
