import { type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import { retryOnce } from '../db/driver-errors.js';
import { type DeadlineKind, deadlineKinds } from '../resources/device/index.js';

/** When streams of each kind were last received (epoch seconds). */
export type Receipts = { [kind in DeadlineKind]?: number };

/**
 * Deadlines count from receipt, with the period that the device has in the database now (contract 8). Devices whose
 * streams came in the same second are moved together; doing so again does no harm.
 * @returns whether all devices are still there
 */
export async function extendDeadlines(
  db: Database,
  moves: readonly (Receipts & { _id: StoredDocument['_id'] | undefined })[],
): Promise<boolean> {
  const byReceipt = new Map<string, { receipts: Receipts; ids: StoredDocument['_id'][] }>();
  for (const { _id, ...receipts } of moves) {
    const key = `${receipts.stream} ${receipts.status}`;
    const group = byReceipt.get(key) ?? { receipts, ids: [] };
    byReceipt.set(key, group);
    if (_id !== undefined) group.ids.push(_id);
  }
  const devices = db.collection('devices');
  const matched = await Promise.all(
    [...byReceipt.values()].map(async ({ receipts, ids }) => {
      const set = [{ $set: deadlinesAfter(receipts) }];
      const { matchedCount } = await retryOnce(() => devices.updateMany({ _id: { $in: ids } }, set));
      return matchedCount;
    }),
  );
  return matched.reduce((sum, count) => sum + count, 0) === moves.length;
}

/** What lies in an index is moved only where it comes near (docs/decisions.md 30). */
function deadlinesAfter(receipts: Receipts): object {
  const set: { [path: string]: object } = {};
  for (const [kind, now] of Object.entries(receipts)) {
    const last = { $max: [`$last_${kind}_at`, now] };
    const after = (seconds: number) => ({ $add: [last, { $multiply: [`$frequency_${kind}`, seconds] }] });
    const [safe_until, late_from] = [`${kind}_safe_until`, `${kind}_late_from`];
    const isNear = { $lt: [`$${safe_until}`, after(30)] };
    set[`last_${kind}_at`] = last;
    set[`${kind}_due_at`] = after(60);
    set[safe_until] = { $cond: [isNear, after(60), `$${safe_until}`] };
    set[late_from] = { $cond: [isNear, after(90), `$${late_from}`] };
  }
  return set;
}

/** What lies around a deadline that has just been looked at. */
function boundsOf(kind: DeadlineKind): object {
  return {
    [`${kind}_safe_until`]: `$${kind}_due_at`,
    [`${kind}_late_from`]: { $add: [`$${kind}_due_at`, { $multiply: [`$frequency_${kind}`, 30] }] },
  };
}

/** The indexes of lists by status, which hold `…_late_from` for this. */
const hints = {
  stream: { account: 1, stream_safe_until: 1, status_safe_until: 1, stream_late_from: 1, id_developer: 1 },
  status: { account: 1, status_safe_until: 1, status_late_from: 1, id_developer: 1 },
} as const;

/**
 * Has `…_safe_until` of all devices of the account tell whether they are late at `now` (epoch seconds), for the lists by
 * status: of those between `…_safe_until` and `…_late_from`, which are few, the deadline itself decides.
 */
export async function refreshBounds(db: Database, account: string, now: number): Promise<void> {
  const between = { $gt: 0, $lte: now };
  await Promise.all(
    deadlineKinds.map((kind) => {
      const [later, due_later] = [{ [`${kind}_late_from`]: { $gt: now } }, { [`${kind}_due_at`]: { $gt: now } }];
      const filter = { account, [`${kind}_safe_until`]: between, ...later, ...due_later };
      const options = { hint: hints[kind], writeConcern: { w: 1 }, maxTimeMS: read_limit_ms };
      return retryOnce(() => db.collection('devices').updateMany(filter, [{ $set: boundsOf(kind) }], options));
    }),
  );
}

/** Of earlier versions, which had the deadlines themselves in their indexes. */
const legacyIndexes = [
  'account_1_stream_due_at_1_status_due_at_1_id_developer_1',
  'account_1_status_due_at_1_id_developer_1',
] as const;
const chunk = 5000;

/** Gives devices of earlier versions what lists by status look for; their index is there until all of them have it. */
export async function migrateDeadlineBounds(db: Database): Promise<void> {
  const devices = db.collection('devices');
  if (!(await devices.indexExists(legacyIndexes[0]))) return;
  const set = Object.assign({}, ...deadlineKinds.map(boundsOf));
  for (let after = db.idAt(0), left = true; left; ) {
    const page = await devices
      .find({ _id: { $gt: after } }, { projection: { _id: 1 }, sort: { _id: 1 }, limit: chunk })
      .toArray();
    const ids = page.map(({ _id }) => _id);
    await devices.updateMany({ _id: { $in: ids }, stream_late_from: { $exists: false } }, [{ $set: set }]);
    left = page.length === chunk;
    after = ids.at(-1) ?? after;
  }
  for (const name of legacyIndexes.toReversed()) if (await devices.indexExists(name)) await devices.dropIndex(name);
}
