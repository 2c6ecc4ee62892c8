import { createBatcher } from '../../db/batching/batcher.js';
import type { Collection, Database } from '../../db/database.js';
import { isDuplicate, retryOnce } from '../../db/driver-errors.js';
import { findMany, hasMatch } from '../../db/raw-find.js';
import { groupBy } from '../../lib/group-by.js';

/** A name that several objects of one type in an account have. */
export interface SharedName {
  account: string;
  name: string;
}

/**
 * Takes a number for a new object of a shared name: the lowest free one, as a rule. Another process may have taken it too.
 * @param collided the number that the object could not have, if this is not the first call for it
 */
export type TakeNumber = (name: SharedName, collided?: number) => Promise<number>;

interface Counter {
  _id: string;
  last: number;
}

interface Job {
  name: SharedName;
  collided: number | undefined;
  number?: number | undefined;
}

/** Numbers up to this one are reused after a delete; higher ones are not. */
const max_low_number = 64;

/** Returns the identifier of the object with a number (reference/identifiers.md#names). */
export function identifierOf({ name, account }: SharedName, number: number): string {
  return `${name}-${number}@${account}`;
}

/** @returns the smallest free numbers, at most `count`; none if all low ones are in use */
async function findLowFree(collection: Collection, name: SharedName, count: number): Promise<number[]> {
  const numbers = Array.from({ length: max_low_number - 1 }, (_, index) => index + 2);
  const id_developer = { $in: numbers.map((number) => identifierOf(name, number)) };
  const projection = { _id: 0, id_developer: 1 };
  const found = await findMany(collection, { account: name.account, id_developer }, { projection });
  const used = new Set(found.map((document) => document.id_developer));
  return numbers.filter((number) => !used.has(identifierOf(name, number))).slice(0, count);
}

/** @returns the last number in use from `from` on without a large gap, found in a logarithmic number of reads */
async function findLastUsed(collection: Collection, name: SharedName, from: number): Promise<number> {
  const { account } = name;
  const isUsed = (number: number) => hasMatch(collection, { account, id_developer: identifierOf(name, number) });
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

/**
 * Numbers the objects of a type that share a name. Calls at the same time get different numbers from one look at the
 * database: each would find the same free number by itself, and all but one would try again.
 */
export function openSharedNames(db: Database, plural: string): TakeNumber {
  const collection = db.collection(plural);
  const counters = db.collection<Counter>('identifier_counters');

  /** Takes the next numbers after `from` and after those taken before. @returns the last one of them */
  async function takeNext({ name, account }: SharedName, from: number, count: number): Promise<number> {
    const last = { $add: [{ $max: [{ $ifNull: ['$last', 1] }, from] }, count] };
    const take = () =>
      counters.findOneAndUpdate({ _id: `${plural} ${name}@${account}` }, [{ $set: { last } }], {
        upsert: true,
        returnDocument: 'after',
        writeConcern: { w: 1 },
      });
    // concurrent first calls may both insert the counter
    const counter = await retryOnce(take).catch((error: unknown) => {
      if (isDuplicate(error)) return take();
      throw error;
    });
    return counter?.last ?? from + count;
  }

  async function takeNumbers(jobs: readonly Job[]): Promise<void> {
    const [{ name }] = jobs as [Job];
    const fresh = jobs.filter(({ collided }) => collided === undefined);
    const others = jobs.filter(({ collided }) => collided !== undefined);
    const numbers = fresh.length === 0 ? [] : await findLowFree(collection, name, fresh.length);
    const count = jobs.length - numbers.length;
    if (count > 0) {
      const collided = others.map((job) => job.collided ?? 1);
      const from = others.length === 0 ? 1 : await findLastUsed(collection, name, Math.max(...collided));
      const last = await takeNext(name, from, count);
      numbers.push(...Array.from({ length: count }, (_, index) => last - count + 1 + index));
    }
    for (const [index, job] of [...fresh, ...others].entries()) job.number = numbers[index];
  }

  async function commit(jobs: readonly Job[]): Promise<ReadonlyMap<Job, Error>> {
    const failed = new Map<Job, Error>();
    const groups = groupBy(jobs, ({ name: { name, account } }) => `${name}@${account}`);
    await Promise.all(
      [...groups.values()].map((same) =>
        takeNumbers(same).catch((error: Error) => {
          for (const job of same) failed.set(job, error);
        }),
      ),
    );
    return failed;
  }

  const submit = createBatcher(commit, {
    maxBatchSize: 64,
    maxInFlight: 1,
    accountOf: ({ name: { account } }) => account,
  });
  return async (name, collided) => {
    const job: Job = { name, collided };
    await submit(job);
    return job.number as number;
  };
}
