import { type ClusteredDocument, readRanges } from '../db/clustered.js';
import type { Database, JobDeps, StoredObject } from '../db/database.js';
import { hasOnlyDuplicates } from '../db/driver-errors.js';
import { createDueRunner } from '../db/due-work.js';
import { type Id, keyOfId } from '../db/ids.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../db/leased-job.js';
import { findMany, runPipeline } from '../db/raw-find.js';
import { splitIntoBatches } from '../lib/batches.js';
import { ignore } from '../lib/promises.js';
import { device, model, stream } from '../resources/index.js';
import type { Measure } from '../resources/measure.js';
import { formatPointer, parseDataPath } from '../schema/data-path.js';
import { deriveSummaries, limitPaths, mergeSummaries, type SummaryTarget } from './derive.js';
import {
  buildHourKey,
  buildSpanRange,
  delay_s,
  emptySummary,
  type HourDocument,
  hour_s,
  progressOf,
  roundToHour,
  type SummaryProgress,
  summariesOf,
} from './hours.js';

/** Observers of the summaries. */
export interface SummaryMetrics {
  /** All hours before this time (epoch seconds) are summarised; undefined: not known here. */
  until(at: number | undefined): void;
  /** Streams that were summarised. */
  summarized(count: number): void;
}

interface Deps extends JobDeps {
  metrics: SummaryMetrics;
}

const period_ms = 2000;
/** Devices that one step works on, and those that share a command. */
const [step_devices, command_devices] = [100, 20];
const due_hours = 20;
/** Spans of history that one command summarises: about as long as have this many streams, 0.2 s of the database here. */
const [first_width_s, max_width_s, piece_streams] = [86_400, 86_400 * 366, 8000];

type Target = Omit<SummaryTarget, 'from' | 'to'>;
type Pace = Pick<Turn, 'isLeaseHeld' | 'pause'>;

/** Summarises hours that are over, and marked hours again, on one instance (docs/decisions/0035-summaries-of-hours.md). */
export function startSummaries(deps: Deps): LeasedJob {
  const { db, log, clock, metrics } = deps;
  const work = createSummaryWork(deps);
  return startPeriodicJob({
    ...{ db, log, name: 'stream-summaries', period_ms, mayRun: db.isClockRight },
    onElsewhere: () => metrics.until(undefined),
    work: (turn) => work(clock() / 1000, turn),
  });
}

/** Creates the function that does a piece of the work at `now` (epoch seconds). @returns whether there is more */
export function createSummaryWork({ db, log, metrics }: Omit<Deps, 'clock'>) {
  const runDue = createDueRunner<HourDocument>({
    db,
    open: () => summariesOf(db),
    account: 'account',
    piece_size: due_hours,
    run: (due, now) => renewHours(db, due, now),
    log,
    failure: 'an hour of streams is not summarised again yet; retrying',
  });
  /** The hours before this time (epoch seconds) were found to be summarised during a turn. */
  let summarized: { turn: Pace; until: number } | undefined;
  return async (now: number, turn: Pace): Promise<boolean> => {
    const isDue = await runDue(now);
    const hour = roundToHour(now - delay_s);
    if (summarized?.turn === turn && summarized.until >= hour) return isDue;
    const isBehind = await advance({ db, log, metrics }, now, turn);
    if (!isBehind && turn.isLeaseHeld()) summarized = { turn, until: hour };
    return isDue || isBehind;
  };
}

/** Summarises marked hours again, unless they have another mark since. Hours that are not over yet wait. */
async function renewHours(db: Database, due: readonly HourDocument[], now: number): Promise<void> {
  const summaries = summariesOf(db);
  const timeOf = ({ _id }: HourDocument) => Number(_id.at) + hour_s + delay_s;
  const early = due.filter((hour) => timeOf(hour) > now);
  const over = due.filter((hour) => timeOf(hour) <= now);
  const targets = await findTargets(
    db,
    over.map(({ parent, _id: { account, device: id } }) => ({ _id: parent, account, id_developer: id })),
  );
  const spans = over.map(({ _id }, index) => {
    const from = Number(_id.at);
    return { ...(targets[index] as Target), from, to: from + hour_s };
  });
  const made = new Map((await deriveSummaries(db, spans)).map(({ target, summary }) => [target, summary]));
  const writes = [
    ...early.map((hour) => ({ hour, update: { $set: { due_at: timeOf(hour) } } })),
    ...over.map((hour, index) => {
      const span = spans[index] as SummaryTarget;
      const summary = limitPaths(
        mergeSummaries(hour.base ?? emptySummary, made.get(span) ?? emptySummary),
        span.measures,
      );
      const unset = {
        mark: 1,
        due_at: 1,
        account: 1,
        ...(!summary.texts && { texts: 1 }),
        ...(!summary.more && { more: 1 }),
      };
      return { hour, update: { $set: summary, $unset: unset } };
    }),
  ].map(({ hour: { _id, mark }, update }) => ({ updateOne: { filter: { _id, mark }, update } }));
  if (writes.length > 0) await summaries.bulkWrite(writes as never, { ordered: false });
}

interface Sender extends Pick<StoredObject, '_id' | 'account' | 'id_developer'> {
  id_model?: string;
}

/** Adds the measures that are declared for devices. */
export async function findTargets(db: Database, senders: readonly Sender[]): Promise<Target[]> {
  const ids = senders.map(({ _id }) => _id);
  const modelled = { _id: { $in: ids }, id_model: { $exists: true } } as object;
  const devices = await findMany(db.collection<Sender>(device.plural), modelled, { projection: { id_model: 1 } });
  const modelsOf = new Map(devices.map(({ _id, id_model }) => [keyOfId(_id), id_model]));
  const named = [...new Set(modelsOf.values())];
  const accounts = [...new Set(senders.map(({ account }) => account))];
  const models = await findMany(
    db.collection<Sender & { measures?: readonly Measure[] }>(model.plural),
    { account: { $in: accounts }, id_developer: { $in: named } } as object,
    { projection: { id_developer: 1, measures: 1 } },
  );
  const measuresOf = new Map(models.map(({ id_developer, measures = [] }) => [id_developer, measures.map(pointerOf)]));
  return senders.map(({ _id: parent, account, id_developer: id }) => ({
    ...{ account, device: id, parent },
    measures: measuresOf.get(modelsOf.get(keyOfId(parent)) ?? '') ?? [],
  }));
}

function pointerOf({ path }: Measure): string {
  return formatPointer(parseDataPath(path) ?? { steps: [] });
}

type AdvanceDeps = Pick<Deps, 'db' | 'log' | 'metrics'>;

/** Summarises the hours that are over, of some devices. @returns whether there is more */
async function advance({ db, log, metrics }: AdvanceDeps, now: number, turn: Pace): Promise<boolean> {
  const progress = (await progressOf(db).findOne({ _id: 'streams' })) ?? { _id: 'streams' };
  const { until, after } = progress;
  const next = progress.next ?? roundToHour(now - delay_s);
  metrics.until(until);
  if (until !== undefined && until >= next) return false;
  if (until === undefined && after === undefined) log.info({}, 'summarising the streams that are stored');
  const options = { projection: { account: 1, id_developer: 1 }, sort: { _id: 1 }, limit: step_devices } as const;
  const filter = after === undefined ? {} : { _id: { $gt: after } };
  const devices = await findMany(db.collection<Sender>(device.plural), filter, options);
  const count = await summarizeDevices(db, devices, { until, next }, turn);
  if (count === undefined) return false;
  metrics.summarized(count);
  const isLast = devices.length < step_devices;
  await save(db, isLast ? { until: next } : { until, next, after: devices.at(-1)?._id });
  if (isLast) metrics.until(next);
  if (isLast && until === undefined) log.info({}, 'the streams that were stored are summarised');
  return true;
}

async function save(
  db: Database,
  { until, next, after }: { until?: number | undefined; next?: number; after?: Id | undefined },
) {
  const document: Omit<SummaryProgress, '_id'> = {
    ...(until !== undefined && { until }),
    ...(next !== undefined && { next }),
    ...(after && { after }),
  };
  await progressOf(db).replaceOne({ _id: 'streams' }, document, { upsert: true });
}

/** @returns the number of streams; undefined if the turn is over */
async function summarizeDevices(
  db: Database,
  devices: readonly Sender[],
  { until, next }: { until: number | undefined; next: number },
  turn: Pace,
): Promise<number | undefined> {
  const targets = await findTargets(db, devices);
  const firsts = await findFirst(db, targets, { from: until, to: next });
  const occupied = targets.flatMap((target) => {
    const first = firsts.get(keyOfId(target.parent));
    return first === undefined ? [] : [{ ...target, from: roundToHour(first), to: next }];
  });
  const isRecent = ({ from, to }: SummaryTarget) => to - from <= first_width_s;
  let count = 0;
  for (const piece of splitIntoBatches(occupied.filter(isRecent), command_devices)) {
    if (!turn.isLeaseHeld()) return undefined;
    count += await summarizePiece(db, piece, turn);
  }
  for (const target of occupied) if (!isRecent(target)) count += await summarizeHistory(db, target, turn);
  return turn.isLeaseHeld() ? count : undefined;
}

/** Finds `at` of the first data stream of devices in a span, by `keyOfId`. */
async function findFirst(
  db: Database,
  targets: readonly Target[],
  span: { from: number | undefined; to: number },
): Promise<ReadonlyMap<string, number>> {
  const ranges = targets.map((target) => ({ ...buildSpanRange(target, span), _t: 'str' }));
  const first = [{ $sort: { _id: 1 } }, { $limit: 1 }, { $project: { parent: 1 } }];
  const streams = db.collection<ClusteredDocument>(stream.plural);
  const pipeline = readRanges(stream.plural, ranges, first);
  const found = await runPipeline<ClusteredDocument>(streams, pipeline);
  return new Map(found.map(({ _id, parent }) => [keyOfId(parent as Id), Number(_id.at)]));
}

/** Summarises the history of a device in spans that others do not notice. */
async function summarizeHistory(db: Database, target: SummaryTarget, turn: Pace): Promise<number> {
  let count = 0;
  let width_s = first_width_s;
  for (let from: number | undefined = target.from; from !== undefined && turn.isLeaseHeld(); ) {
    const to = Math.min(from + width_s, target.to);
    const streams = await summarizePiece(db, [{ ...target, from, to }], turn);
    count += streams;
    const factor = Math.min(Math.max(piece_streams / Math.max(streams, 1), 0.25), 4);
    width_s = Math.min(Math.max(roundToHour(width_s * factor), hour_s), max_width_s);
    const next: number | undefined = (await findFirst(db, [target], { from: to, to: target.to })).get(
      keyOfId(target.parent),
    );
    from = next === undefined ? undefined : roundToHour(next);
  }
  return count;
}

/** Stores the summaries of hours that have none, and leaves time to others. */
async function summarizePiece(db: Database, targets: readonly SummaryTarget[], turn: Pace): Promise<number> {
  const begun_at = performance.now();
  const hours = await deriveSummaries(db, targets);
  const writes = hours.map(({ target, at, summary }) => {
    const { parent } = target;
    const update = { $setOnInsert: { parent, ...summary } };
    return { updateOne: { filter: { _id: buildHourKey({ ...target, at }) }, update, upsert: true } };
  });
  if (writes.length > 0 && turn.isLeaseHeld())
    await summariesOf(db)
      .bulkWrite(writes, { ordered: false })
      // one was marked for the first time while this ran
      .catch(ignore(hasOnlyDuplicates));
  await turn.pause((performance.now() - begun_at) / 2);
  return hours.reduce((sum, { summary }) => sum + summary.streams, 0);
}
