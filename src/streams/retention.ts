import { type ClusteredDocument, deleteRange, findOccupied, type RangeCondition } from '../db/clustered.js';
import { type Database, type Log, read_limit_ms, type StoredObject } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../db/leased-job.js';
import { withReview } from '../objects/values/reviews.js';
import { device, model, stream } from '../resources/index.js';

interface Options {
  db: Database;
  log: Log;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Days for devices that neither have days themselves nor by their model; undefined: their streams are kept. */
  days: number | undefined;
}

/** Pieces of work in turns, of which others get most. */
interface Pace {
  isLeaseHeld(): boolean;
  pause(milliseconds: number): Promise<void>;
}

interface Retained extends StoredObject {
  id_model?: string;
  stream_retention_days?: number;
}

const period_ms = 3_600_000;
const day_s = 86_400;
/** Devices whose oldest streams one command looks for. */
const piece_devices = 250;
/** Pauses are this many times as long as the work before them. */
const pause_factor = 4;

/** Creates the function that pauses after a piece of work. @returns whether the work may go on */
function createRest({ isLeaseHeld, pause }: Pace): () => Promise<boolean> {
  let begun_at = performance.now();
  return async () => {
    await pause(pause_factor * (performance.now() - begun_at));
    begun_at = performance.now();
    return isLeaseHeld();
  };
}

/** Deletes old streams, every hour (reference/streams.md#retention). */
export function startStreamRetention({ db, log, clock, days }: Options): LeasedJob {
  const work = (turn: Turn) => removeOldStreams(db, days, clock() / 1000, turn);
  return startPeriodicJob({ db, log, name: 'stream-retention', period_ms, mayRun: db.isClockRight, work });
}

/** Deletes the streams of all devices whose `at` is older than their days, at `now` (epoch seconds). */
export async function removeOldStreams(db: Database, days: number | undefined, now: number, pace: Pace): Promise<void> {
  const isRetained = { stream_retention_days: { $exists: true } };
  const ofModels = new Map<string, number>();
  for await (const { id_developer, stream_retention_days } of db.collection<Retained>(model.plural).find(isRetained))
    ofModels.set(id_developer, stream_retention_days ?? 0);
  const devices = db.collection<Retained>(device.plural);
  const streams = db.collection<ClusteredDocument>(stream.plural);
  const projection = { account: 1, id_developer: 1, id_model: 1, stream_retention_days: 1 };
  const rest = createRest(pace);
  for (let after: Id | undefined; pace.isLeaseHeld(); ) {
    const options = { projection, sort: { _id: 1 }, limit: piece_devices, maxTimeMS: read_limit_ms } as const;
    const piece = await devices.find(after === undefined ? {} : { _id: { $gt: after } }, options).toArray();
    const ranges = piece.flatMap((each) => {
      const kept = each.stream_retention_days ?? ofModels.get(each.id_model ?? '') ?? days;
      return kept === undefined ? [] : [{ device: each, range: buildOldRange(each, now - kept * day_s) }];
    });
    const old = ranges.map(({ range }) => range);
    const occupied = new Set(await findOccupied(streams, old));
    if (!(await rest())) return;
    for (const { device: sender, range } of ranges) {
      if (!occupied.has(range)) continue;
      await withReview(db, [sender], now, () => deleteRange(streams, range, rest));
      if (!(await rest())) return;
    }
    after = piece.at(-1)?._id;
    if (piece.length < piece_devices) return;
  }
}

function buildOldRange({ _id: parent, account, id_developer }: StoredObject, before: number): RangeCondition {
  const key = { account, device: id_developer };
  return { _id: { $gte: key, $lt: { ...key, at: before } }, parent };
}
