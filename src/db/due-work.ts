import { groupBy } from '../lib/group-by.js';
import { runInParallel } from '../lib/parallel.js';
import type { Collection, Database, Log } from './database.js';
import { findMany } from './raw-find.js';

/** A document of work that is due at a time (epoch seconds). */
interface DueDocument {
  _id: unknown;
  due_at?: number | undefined;
}

interface DueWork<Due> {
  db: Pick<Database, 'findDue'>;
  /** Opens the collection, which has an index on `due_at` and the account. */
  open(): Collection<Due & DueDocument>;
  /** The member that names the account. */
  account: keyof Due & string;
  /** Documents of an account that are worked on together, at most: as many as take 100 ms. */
  piece_size: number;
  /** Works on documents of one account, which are found again as long as they are due. @returns true if some are at once */
  run(due: readonly Due[], now: number): Promise<unknown>;
  log: Log;
  /** Message for what fails. */
  failure: string;
}

const max_found = 500;
const max_concurrent = 2;
/** Begins no further pieces after this time, so that documents of others are found. */
const round_ms = 300;
const retry_s = 5;

/**
 * Creates a function that runs a round of due work at `now` (epoch seconds). A round finds the earliest documents and works on
 * them in pieces, accounts in turns; accounts that have more are left out until all others had their turn. What fails is put
 * off, so that it does not keep up the rest. @returns whether there may be more
 */
export function createDueRunner<Due extends DueDocument>(work: DueWork<Due>): (now: number) => Promise<boolean> {
  const { db, open, account, piece_size, run, log, failure } = work;
  let served: unknown[] = [];
  let isMore = false;

  async function runApart(piece: readonly Due[], now: number): Promise<void> {
    for (const due of piece) await run([due], now).catch((error: unknown) => putOff(due, now, error));
  }

  async function putOff({ _id, due_at, ...due }: Due, now: number, error: unknown): Promise<void> {
    log.warn({ err: error, account: due[account as keyof typeof due] }, failure);
    await open().updateOne({ _id, due_at } as object, { $set: { due_at: now + retry_s } } as object);
  }

  return async (now) => {
    const isDue = isMore || (await db.findDue([{ collection: open(), filter: { due_at: { $lte: now } } }]));
    if (!isDue) return false;
    const filter = { due_at: { $lte: now }, ...(served.length > 0 && { [account]: { $nin: served } }) };
    const options = { sort: { due_at: 1 }, limit: max_found } as const;
    const found = (await findMany(open(), filter as object, options)) as unknown as Due[];
    const queues = groupBy(found, (due): unknown => due[account]);
    isMore = served.length > 0 || found.length === max_found;
    served = found.length === max_found ? [...served, ...queues.keys()] : [];
    await runInParallel(takePieces([...queues.values()], piece_size), max_concurrent, async (piece) => {
      if ((await run(piece, now).catch(() => runApart(piece, now))) === true) isMore = true;
    });
    isMore ||= [...queues.values()].some((queue) => queue.length > 0);
    return isMore;
  };
}

/** Takes pieces from queues in turns: one of each, and more until the round ends. */
function* takePieces<Due>(queues: readonly Due[][], size: number): Generator<readonly Due[]> {
  const end = performance.now() + round_ms;
  let isFirst = true;
  for (let waiting = queues; waiting.length > 0; waiting = waiting.filter((queue) => queue.length > 0)) {
    for (const queue of waiting)
      if (isFirst || performance.now() < end) yield queue.splice(0, size);
      else return;
    isFirst = false;
  }
}
