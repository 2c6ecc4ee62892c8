import { type Database, read_limit_ms } from '../db/database.js';
import { retryOnce } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { type DeferredReceipts, isDeferrable, max_skew_s } from '../objects/receipts/deferred-receipts.js';
import { type DeadlineMove, extendDeadlines } from '../objects/receipts/device-deadlines.js';
import { type DeadlineKind, deadlineKinds } from '../resources/device/status.js';
import { device } from '../resources/index.js';
import type { StreamKind } from '../resources/stream.js';
import type { StreamDocument } from './documents.js';
import type { AccountPart } from './finish.js';
import type { Device, Devices, Submission } from './senders.js';

const kindOf: { [kind in StreamKind]: DeadlineKind } = { str: 'stream', sta: 'status' };

/** Receipts of a device in a batch. */
interface Move extends DeadlineMove {
  /** The receipts can be read from the streams, and nothing else of the device has to be stored. */
  isDeferrable: boolean;
}

/** Collects the receipts of a batch by device, of jobs with their stored documents. */
export function collectMoves(
  jobs: Iterable<Submission & { documents: readonly StreamDocument[] }>,
  devices: Devices,
  parts: ReadonlyMap<string, AccountPart>,
): readonly Move[] {
  const moves = new Map<string, Move>();
  for (const { entries, documents, now, isWill, skipsRepeated, isImport } of jobs) {
    const isExceptional = [isWill, skipsRepeated, isImport].includes(true);
    for (const { device, _t, at = now } of entries) {
      const move = moves.get(device) ?? createMove(devices.get(device), parts);
      // a majority then has what a stream was left out for
      if (isWill || skipsRepeated || _t === 'str') move.hasNewRevision = true;
      if (isExceptional || Math.abs(at - now) > max_skew_s) move.isDeferrable = false;
      moves.set(device, move);
    }
    if (isWill) continue;
    for (const { _id, _t } of documents) {
      const { receipts = {} } = moves.get(_id.device) ?? {};
      const received = isImport ? Math.floor(Math.min(_id.at.value, now)) : now;
      receipts[kindOf[_t]] = Math.max(receipts[kindOf[_t]] ?? 0, received);
    }
  }
  for (const [id, move] of moves) move.isDeferrable &&= mayWait(move, devices.get(id));
  return [...moves.values()];
}

function createMove(sender: Device | undefined, parts: ReadonlyMap<string, AccountPart>): Move {
  const mark = sender && parts.get(sender.account)?.evaluation?.markOf(sender);
  return { _id: sender?._id, receipts: {}, hasNewRevision: false, mark, isDeferrable: true };
}

function mayWait({ mark, receipts }: Move, sender: Device | undefined): boolean {
  // the alarms of a device with a condition that is met depend on its `stream_revision`
  const isMarked = sender?.condition_met_at !== undefined || (mark !== undefined && 'met_at' in mark);
  if (sender === undefined || isMarked) return false;
  return deadlineKinds.every((kind) => {
    const received = receipts[kind];
    return received === undefined || isDeferrable(sender.deadlines[kind], received);
  });
}

/**
 * Moves deadlines after streams were stored (reference/devices.md#deadlines); those of devices that keep sending are moved
 * later. @param stream_revision a new one @returns false if a device was deleted or marked since it was loaded
 */
export async function recordReceipts(
  { db, deferred }: { db: Database; deferred: DeferredReceipts },
  moves: readonly Move[],
  stream_revision: Id,
): Promise<boolean> {
  const waiting = moves.filter((move) => move.isDeferrable);
  const isAdded = waiting.length > 0 && deferred.add(waiting);
  const [hasMoved, areSame] = await Promise.all([
    extendDeadlines(db, isAdded ? moves.filter((move) => !move.isDeferrable) : moves, stream_revision),
    !isAdded || areUnmarked(db, waiting),
  ]);
  return hasMoved && areSame;
}

/** Looks at devices again once their streams are stored. */
async function areUnmarked(db: Database, moves: readonly Move[]): Promise<boolean> {
  const ids = moves.flatMap(({ _id }) => _id ?? []);
  const query = { _id: { $in: ids }, condition_met_at: { $exists: false } };
  const { n } = await retryOnce(() => db.command({ count: device.plural, query, maxTimeMS: read_limit_ms }));
  return n === ids.length;
}
