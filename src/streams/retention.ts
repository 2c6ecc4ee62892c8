import { type ClusteredDocument, findOccupied, type RangeCondition } from '../db/clustered.js';
import type { Database, JobDeps, StoredObject } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../db/leased-job.js';
import { findMany } from '../db/raw-find.js';
import { withReview } from '../objects/values/reviews.js';
import { device, model, stream, streamsummary } from '../resources/index.js';
import { buildSpanRange, progressOf, roundToHour } from '../summaries/hours.js';
import { findTargets } from '../summaries/job.js';
import { removeOldSummaries, removeSummarized } from '../summaries/retention.js';

/** Days after which streams and their summaries are removed; undefined: they are kept. */
interface Days {
  streams?: number | undefined;
  summaries?: number | undefined;
}

interface Options extends JobDeps {
  /** Default for devices that have none themselves or by their model. */
  days: Days;
}

/** Pieces of work in turns, of which others get most. */
interface Pace {
  isLeaseHeld(): boolean;
  pause(milliseconds: number): Promise<void>;
}

interface Retained extends StoredObject {
  id_model?: string;
  stream_retention_days?: number;
  summary_retention_days?: number;
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

/**
 * Removes the streams of all devices whose `at` is older than their days, by whole hours that are summarised, and old
 * summaries. @param now epoch seconds
 */
export async function removeOldStreams(db: Database, days: Days, now: number, pace: Pace): Promise<void> {
  const daysOf = await findDays(db, days);
  const { until = 0 } = (await progressOf(db).findOne({ _id: 'streams' })) ?? {};
  const devices = db.collection<Retained>(device.plural);
  const projection = { account: 1, id_developer: 1, id_model: 1, stream_retention_days: 1, summary_retention_days: 1 };
  const rest = createRest(pace);
  for (let after: Id | undefined; pace.isLeaseHeld(); ) {
    const options = { projection, sort: { _id: 1 }, limit: piece_devices } as const;
    const piece = await findMany(devices, after === undefined ? {} : { _id: { $gt: after } }, options);
    const retained = piece.map((sender) => ({ sender, kept: daysOf(sender) }));
    const before = (kept: number) => Math.min(roundToHour(now - kept * day_s), until);
    const timesOf = (kind: keyof Days) =>
      retained.map(({ sender, kept: { [kind]: kept } }) => ({ sender, to: kept && before(kept) }));
    const streams = await findOld(db, stream.plural, timesOf('streams'));
    const summaries = await findOld(db, streamsummary.plural, timesOf('summaries'));
    if (!(await rest())) return;
    for (const { sender, to } of streams) {
      const [target] = await findTargets(db, [sender]);
      if (target) await withReview(db, [sender], now, () => removeSummarized(db, target, to, rest));
      if (!(await rest())) return;
    }
    for (const { sender, to } of summaries) {
      await removeOldSummaries(db, placeOf(sender), to);
      if (!(await rest())) return;
    }
    after = piece.at(-1)?._id;
    if (piece.length < piece_devices) return;
  }
}

const placeOf = ({ account, id_developer: id, _id: parent }: StoredObject) => ({ account, device: id, parent });

/** Loads the days of models. @returns the days of a device */
async function findDays(db: Database, days: Days): Promise<(sender: Retained) => Days> {
  const isRetained = {
    $or: [{ stream_retention_days: { $exists: true } }, { summary_retention_days: { $exists: true } }],
  };
  const models = await findMany(db.collection<Retained>(model.plural), isRetained as object);
  const ofModels = new Map(models.map((each) => [each.id_developer, each]));
  return (sender) => {
    const ofModel = ofModels.get(sender.id_model ?? '');
    return {
      streams: sender.stream_retention_days ?? ofModel?.stream_retention_days ?? days.streams,
      summaries: sender.summary_retention_days ?? ofModel?.summary_retention_days ?? days.summaries,
    };
  };
}

interface Old {
  sender: Retained;
  to: number;
}

/** Finds the devices that have something from before a time. */
async function findOld(
  db: Database,
  plural: string,
  candidates: readonly { sender: Retained; to: number | undefined }[],
): Promise<Old[]> {
  const old = candidates.filter((each): each is Old => each.to !== undefined);
  const ranges = old.map(({ sender, to }) => buildSpanRange(placeOf(sender), { to }));
  const occupied: ReadonlySet<RangeCondition> = new Set(
    await findOccupied(db.collection<ClusteredDocument>(plural), ranges),
  );
  return old.filter((_each, index) => occupied.has(ranges[index] as RangeCondition));
}
