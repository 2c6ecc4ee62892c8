import { type Id, keyOfId } from '../db/ids.js';
import { confirmReads } from '../db/raw-find.js';
import { groupBy } from '../lib/group-by.js';
import { runInParallel } from '../lib/parallel.js';
import { awaitLater } from '../lib/promises.js';
import { createTurns } from '../lib/turns.js';
import type {
  Evaluation,
  PrepareEvaluation,
  ReceivedStream,
  SendingDevice,
} from '../objects/receipts/received-streams.js';
import { scheduleDue } from './due-devices.js';
import { type EvaluationDeps, isRaisable, refreshRecord } from './evaluate.js';
import { buildStep, findSent, hasSent, type Step } from './facts.js';
import { isFresh, removeMarks } from './marks.js';
import { type AlarmRecord, findRecords, isAnyMet, recordsOf } from './records.js';
import { createMemberLookup, type IsMember } from './review.js';
import type { Coverage, Rule, RuleSet, RuleSets } from './rule-sets.js';

/** Rules and devices that are evaluated at the same time: their reads and writes share commands. */
const max_concurrent = 500;

/** Marks that are as old are removed when no condition is met; a mark precedes the record of a condition by moments. */
const mark_s = 60;

/** Time and revision of a batch of streams, as its devices have them. */
interface Moment {
  /** Epoch seconds. */
  now: number;
  stream_revision: Id;
  signal: AbortSignal;
}

/** Streams of one device, request by request. */
interface Work {
  device: SendingDevice;
  coverage: Coverage;
  requests: (readonly ReceivedStream[])[];
}

/** Streams that have been looked at in memory. */
interface Watched extends Omit<Work, 'requests'> {
  steps: readonly Step[];
  /** One of the streams may need a record, whatever was met before. */
  isMeeting: boolean;
}

/** A rule that the streams of a device may affect, and its record. */
interface Change {
  rule: Rule;
  record: AlarmRecord | undefined;
}

interface Deps extends EvaluationDeps {
  ruleSets: RuleSets;
  metrics: EvaluationMetrics;
}

export interface EvaluationMetrics {
  /** Duration of what the evaluation adds to a batch of streams. */
  evaluated(milliseconds: number): void;
}

/**
 * Creates the evaluation of streams (reference/alarms.md#evaluation). It ends before their senders are answered, so that what
 * is acknowledged has been looked at. Alarms are looked up only for devices that have a mark: before a record says that a
 * condition is met, its device is marked, and the write that moves the deadlines of a device fails if it was marked since.
 */
export function createStreamObserver(deps: Deps): PrepareEvaluation {
  const { ruleSets } = deps;
  return (account) => {
    const set = awaitLater(ruleSets.of(account));
    if (!(set instanceof Promise) && set.rules.length === 0) return undefined;
    return async (requests) => evaluate(deps, requests, await set);
  };
}

async function evaluate(
  deps: Deps,
  requests: readonly (readonly ReceivedStream[])[],
  rules: RuleSet,
): Promise<Evaluation> {
  const begun = performance.now();
  const now = deps.clock() / 1000;
  const watched = new Map<string, Watched>();
  const takeTurns = createTurns();
  for (const [key, { device, coverage, requests: own }] of groupByDevice(requests, rules)) {
    await takeTurns();
    const steps = own.map((streams, index) => buildStep(device, streams, own.slice(index + 1).flat()));
    watched.set(key, { device, coverage, steps, isMeeting: steps.some((step) => isMeetingAny(coverage, step, now)) });
  }
  const evaluation_ms = performance.now() - begun;
  return {
    markOf(device) {
      const each = watched.get(keyOfId(device._id));
      if (each === undefined || isFresh(device.condition_met_at, now)) return undefined;
      if (each.isMeeting) return { met_at: now };
      return device.condition_met_at === undefined ? { isUnmarked: true } : undefined;
    },
    async complete(stream_revision, signal) {
      if (watched.size === 0) return;
      const resumed = performance.now();
      await complete(deps, [...watched.values()], { now, stream_revision, signal });
      deps.metrics.evaluated(evaluation_ms + performance.now() - resumed);
    },
  };
}

function isMeetingAny({ values, joining }: Coverage, step: Step, now: number): boolean {
  const isMeeting = values.some(({ path, conditions }) => {
    const sent = findSent(step, path, now);
    return sent !== undefined && conditions.some((condition) => condition.holds(sent.value, false));
  });
  return isMeeting || joining.some((path) => hasSent(step, path));
}

/** Brings the alarms of marked devices to what their streams say. */
async function complete(deps: Deps, watched: readonly Watched[], moment: Moment): Promise<void> {
  await scheduleFuture(deps, watched, moment.now);
  const marked = watched.filter(({ device, isMeeting }) => isMeeting || device.condition_met_at !== undefined);
  if (marked.length === 0) return;
  const changing = await planChanges(deps, marked, moment);
  await Promise.all([
    // a sender may be answered without a write, for what another evaluation has just stored
    confirmReads(recordsOf(deps.store.db)),
    runInParallel(changing, max_concurrent, async (change) => {
      moment.signal.throwIfAborted();
      await change();
    }),
  ]);
}

async function planChanges(
  deps: Deps,
  marked: readonly Watched[],
  { now, stream_revision }: Moment,
): Promise<readonly (() => Promise<void>)[]> {
  const devices = marked.map(({ device }) => device);
  const ids = devices.map(({ _id }) => _id);
  const records = await findRecords(deps.store.db, ids);
  const changing: (() => Promise<void>)[] = [];
  const unmet: Id[] = [];
  const isMember = createMemberLookup(deps, devices);
  const takeTurns = createTurns();
  for (const { device, coverage, steps, isMeeting } of marked) {
    await takeTurns();
    const current = records.get(keyOfId(device._id)) ?? new Map<string, AlarmRecord>();
    const condition_met_at = isMeeting && !isFresh(device.condition_met_at, now) ? now : device.condition_met_at;
    const sender = { ...device, condition_met_at, stream_revision };
    if (!isMeeting && ![...current.values()].some(isAnyMet)) unmet.push(device._id);
    for (const rule of coverage.rules) {
      const record = current.get(rule.key);
      const isLeavable = record !== undefined && rule.saved_filter !== undefined;
      if (isLeavable || steps.some((step) => isAffected(rule, record, step, now)))
        changing.push(() => applySteps(deps, sender, { rule, record, steps, isMember }));
    }
  }
  if (unmet.length > 0) changing.push(() => removeMarks(deps.store.db, unmet, now - mark_s));
  return changing;
}

/** Finds the devices that rules cover, with their streams. */
function groupByDevice(requests: readonly (readonly ReceivedStream[])[], rules: RuleSet): ReadonlyMap<string, Work> {
  const work = new Map<string, Work>();
  for (const streams of requests) {
    for (const [key, own] of groupBy(streams, ({ device }) => keyOfId(device._id))) {
      const { device } = own[0] as ReceivedStream;
      const each = work.get(key) ?? { device, coverage: rules.covering(device), requests: [] };
      each.requests.push(own);
      if (each.coverage.rules.length > 0) work.set(key, each);
    }
  }
  return work;
}

/** Reports whether streams may change what a rule says of a device: nearly none do. */
function isAffected(rule: Rule, record: AlarmRecord | undefined, step: Step, now: number): boolean {
  if (record !== undefined && (record.conditions_key !== rule.conditions_key || isRaisable(rule, record, now)))
    return true;
  return rule.conditions.some((condition, index) => {
    const isMet = record?.met?.[index] === true;
    if (condition.kind === 'status') return false;
    if (condition.kind === 'absent') return (isMet || record === undefined) && hasSent(step, condition.path);
    const sent = findSent(step, condition.path, now);
    if (sent === undefined) return false;
    return record?.state === 'closed' || condition.holds(sent.value, isMet) !== isMet;
  });
}

/** Evaluates a rule for the requests of a device in their order. */
async function applySteps(
  deps: Deps,
  device: SendingDevice,
  { rule, record: last, steps, isMember }: Pick<Watched, 'steps'> & Change & { isMember: IsMember },
): Promise<void> {
  if (!(await isMember(rule, device))) {
    if (last !== undefined) await deps.records.end(last, deps.clock() / 1000);
    return;
  }
  let record = last;
  for (const step of steps) {
    const now = deps.clock() / 1000;
    if (isAffected(rule, record, step, now))
      record = await refreshRecord(deps, rule, device, { step, floor: now }, record);
  }
}

/** Remembers when streams of the future are to be looked at. */
async function scheduleFuture({ store: { db } }: Deps, watched: readonly Watched[], now: number): Promise<void> {
  const due = watched.flatMap(({ device: { _id, account }, steps }) => {
    const times = steps.flatMap(({ entries }) => entries.map(({ at }) => at)).filter((at) => at > now);
    return times.length === 0 ? [] : [{ _id, account, due_at: times.reduce((first, at) => Math.min(first, at)) }];
  });
  await scheduleDue(db, due);
}
