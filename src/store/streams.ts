import { AppError } from '../errors.js';
import type { ListRequest } from '../kit/validation.js';
import { stream } from '../resources/index.js';
import type { Database, StoredDocument } from './connect.js';
import { read_limit_ms } from './documents.js';
import { isPassing } from './failures.js';
import { planOf } from './plan.js';

/** When streams of each kind were last received (epoch seconds). */
export type Receipts = { [kind in 'stream' | 'status']?: number };

/**
 * Deadlines count from receipt, with the period that the device has in the database now (contract 8). Devices whose
 * streams came in the same second are moved together; doing so again does no harm.
 * @returns whether all devices are still there
 */
export async function moveDeadlines(
  db: Database,
  moves: readonly (Receipts & { _id: StoredDocument['_id'] | undefined })[],
): Promise<boolean> {
  const alike = new Map<string, { receipts: Receipts; ids: StoredDocument['_id'][] }>();
  for (const { _id, ...receipts } of moves) {
    const key = `${receipts.stream} ${receipts.status}`;
    const group = alike.get(key) ?? { receipts, ids: [] };
    alike.set(key, group);
    if (_id !== undefined) group.ids.push(_id);
  }
  const devices = db.collection('devices');
  const matched = await Promise.all(
    [...alike.values()].map(async ({ receipts, ids }) => {
      const move = () => devices.updateMany({ _id: { $in: ids } }, [{ $set: deadlinesAfter(receipts) }]);
      // the driver sends again only what changes one document
      const { matchedCount } = await move().catch((error: unknown) => {
        if (!isPassing(error)) throw error;
        return move();
      });
      return matchedCount;
    }),
  );
  return matched.reduce((sum, count) => sum + count, 0) === moves.length;
}

function deadlinesAfter(receipts: Receipts): object {
  const set: { [path: string]: object } = {};
  for (const [kind, now] of Object.entries(receipts)) {
    const last = { $max: [`$last_${kind}_at`, now] };
    set[`last_${kind}_at`] = last;
    set[`${kind}_due_at`] = { $add: [last, { $multiply: [`$frequency_${kind}`, 60] }] };
  }
  return set;
}

const chunk = 10_000;

/**
 * Removes the streams of a device that match, in the part of the list that `max` and `offset` cut out where they are
 * given (contract 8). The device's status stays. @throws AppError notFound (4041) without the device
 */
export async function removeStreams(
  db: Database,
  account: string,
  device: string,
  request: ListRequest,
): Promise<void> {
  const streams = db.collection('streams');
  const { filter: matching, sort, hint } = planOf(stream, account, request, { device });
  const found = await db
    .collection('devices')
    .findOne({ account, id_developer: device }, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
  if (found === null) throw new AppError('notFound');
  if (request.given.max === undefined && request.offset === 0) {
    await streams.deleteMany(matching);
    return;
  }
  let left = request.given.max === undefined ? Number.POSITIVE_INFINITY : request.max;
  while (left > 0) {
    const options = {
      projection: { _id: 1 },
      sort,
      ...(hint && { hint }),
      skip: request.offset,
      limit: Math.min(left, chunk),
      maxTimeMS: read_limit_ms,
    };
    const page = await streams.find(matching, options).toArray();
    await streams.deleteMany({ _id: { $in: page.map(({ _id }) => _id) } });
    if (page.length < chunk) return;
    left -= page.length;
  }
}

/** Removes what was received before `moment` (epoch milliseconds), of all accounts; ids hold the time they were made. */
export async function removeStreamsBefore(db: Database, moment: number): Promise<void> {
  const streams = db.collection('streams');
  const old = { _id: { $lt: db.idAt(moment) } };
  for (;;) {
    const options = { projection: { _id: 1 }, sort: { _id: 1 }, limit: chunk, maxTimeMS: read_limit_ms } as const;
    const page = await streams.find(old, options).toArray();
    if (page.length > 0) await streams.deleteMany({ _id: { $in: page.map(({ _id }) => _id) } });
    if (page.length < chunk) return;
  }
}
