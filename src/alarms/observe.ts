import { setImmediate as nextTurn } from 'node:timers/promises';
import { runInParallel } from '../lib/parallel.js';
import { keyOfId } from '../objects/ancestors.js';
import type { ObserveStreams, ReceivedStream, SendingDevice } from '../objects/received-streams.js';
import { dueDevicesOf } from './due-devices.js';
import { type EvaluationDeps, settle } from './evaluate.js';
import { buildStep, findSent, hasSent, type Step } from './facts.js';
import { type AlarmRecord, findRecords } from './records.js';
import type { Rule, RuleSet, RuleSets } from './rule-sets.js';

/** Devices that are evaluated at the same time: each takes one connection at a time. */
const max_concurrent = 12;
/** Time after which the checks of a batch let others run. */
const turn_limit_ms = 10;

/** Streams of one device, request by request. */
interface Work {
  device: SendingDevice;
  rules: readonly Rule[];
  requests: (readonly ReceivedStream[])[];
}

interface Deps extends EvaluationDeps {
  ruleSets: RuleSets;
  metrics: EvaluationMetrics;
}

/** Observers of the evaluation. */
export interface EvaluationMetrics {
  /** Duration of what the evaluation adds to a batch of streams. */
  evaluated(milliseconds: number): void;
}

/**
 * Creates the evaluation of streams (reference/alarms.md#evaluation). It ends before their senders are answered, so that what
 * is acknowledged has been looked at. Only what a stream would change is looked up in the database.
 */
export function createStreamObserver(deps: Deps): ObserveStreams {
  const { ruleSets } = deps;
  return (requests) => {
    const sets = new Map<string, RuleSet | Promise<RuleSet>>();
    let isIdle = true;
    for (const streams of requests)
      for (const { device } of streams) {
        if (sets.has(device.account)) continue;
        const set = ruleSets.of(device.account);
        sets.set(device.account, set);
        isIdle &&= !(set instanceof Promise) && set.rules.length === 0;
      }
    return isIdle ? undefined : observe(deps, requests, sets);
  };
}

async function observe(
  deps: Deps,
  requests: readonly (readonly ReceivedStream[])[],
  pending: ReadonlyMap<string, RuleSet | Promise<RuleSet>>,
): Promise<void> {
  const begun = performance.now();
  const sets = new Map<string, RuleSet>();
  // at once, so that none is rejected while another one is awaited
  await Promise.all([...pending].map(async ([account, set]) => sets.set(account, await set)));
  const work = groupByDevice(requests, sets);
  if (work.length === 0) return;
  const records = await findRecords(
    deps.store.db,
    work.map(({ device }) => device._id),
  );
  const changing: (() => Promise<void>)[] = [];
  let turn_started_at = performance.now();
  for (const each of work) {
    if (performance.now() - turn_started_at > turn_limit_ms) {
      await nextTurn();
      turn_started_at = performance.now();
    }
    const now = deps.clock() / 1000;
    const steps = buildSteps(each);
    const current = records.get(keyOfId(each.device._id)) ?? new Map<string, AlarmRecord>();
    if (steps.some((step) => step.entries.some(({ at }) => at > now)))
      changing.push(() => scheduleFuture(deps, each.device, steps, now));
    if (steps.some((step) => each.rules.some((rule) => isAffected(rule, current.get(rule.key), step, now))))
      changing.push(() => applySteps(deps, each, steps, current));
  }
  await runInParallel(changing, max_concurrent, (change) => change());
  deps.metrics.evaluated(performance.now() - begun);
}

/** Finds the devices that rules cover, with their streams. */
function groupByDevice(
  requests: readonly (readonly ReceivedStream[])[],
  sets: ReadonlyMap<string, RuleSet>,
): readonly Work[] {
  const work = new Map<string, Work>();
  for (const streams of requests) {
    const seen = new Map<Work, ReceivedStream[]>();
    for (const stream of streams) {
      const key = keyOfId(stream.device._id);
      let each = work.get(key);
      if (each === undefined) {
        const rules = sets.get(stream.device.account)?.covering(stream.device) ?? [];
        each = { device: stream.device, rules, requests: [] };
        work.set(key, each);
      }
      if (each.rules.length === 0) continue;
      const own = seen.get(each);
      if (own !== undefined) own.push(stream);
      else {
        const first = [stream];
        seen.set(each, first);
        each.requests.push(first);
      }
    }
  }
  return [...work.values()].filter(({ rules }) => rules.length > 0);
}

function buildSteps({ device, requests }: Work): readonly Step[] {
  return requests.map((streams, index) => buildStep(device, streams, requests.slice(index + 1).flat()));
}

/** Reports whether streams may change what a rule says of a device: nearly none do. */
function isAffected(rule: Rule, record: AlarmRecord | undefined, step: Step, now: number): boolean {
  if (record !== undefined && record.conditions_key !== rule.conditions_key) return true;
  return rule.conditions.some((condition, index) => {
    const isMet = record?.met?.[index] === true;
    if (condition.kind === 'status') return false;
    if (condition.kind === 'absent') return (isMet || record === undefined) && hasSent(step, condition.path);
    const sent = findSent(step, condition.path, now);
    if (sent === undefined) return false;
    return record?.state === 'closed' || condition.holds(sent.value, isMet) !== isMet;
  });
}

/** Evaluates the requests of a device in their order. */
async function applySteps(
  deps: Deps,
  { device, rules }: Work,
  steps: readonly Step[],
  current: ReadonlyMap<string, AlarmRecord>,
): Promise<void> {
  for (const rule of rules) {
    let record = current.get(rule.key);
    for (const step of steps) {
      const now = deps.clock() / 1000;
      if (isAffected(rule, record, step, now)) record = await settle(deps, rule, device, { step, floor: now }, record);
    }
  }
}

/** Remembers when streams of the future are to be looked at. */
async function scheduleFuture(
  { store: { db } }: Deps,
  { _id, account }: SendingDevice,
  steps: readonly Step[],
  now: number,
): Promise<void> {
  const times = steps.flatMap(({ entries }) => entries.map(({ at }) => at)).filter((at) => at > now);
  const due_at = times.reduce((first, at) => Math.min(first, at));
  await dueDevicesOf(db).updateOne({ _id }, { $min: { due_at }, $set: { account } }, { upsert: true });
}
