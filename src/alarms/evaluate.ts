import { isDeepStrictEqual } from 'node:util';
import { isDuplicate } from '../db/driver-errors.js';
import { AppError } from '../errors.js';
import { ignore } from '../lib/promises.js';
import type { Store } from '../objects/context.js';
import type { SendingDevice } from '../objects/receipts/received-streams.js';
import { createAncestorNames } from '../objects/tree/ancestors.js';
import { gravityOf } from '../resources/alarm-states.js';
import { alarm } from '../resources/index.js';
import { createFactReader } from './fact-reader.js';
import { createFacts, type Facts, type Step } from './facts.js';
import { createMarker, isFresh } from './marks.js';
import {
  type AlarmRecord,
  buildClosing,
  buildRetirement,
  buildWatchKey,
  createRecordBatches,
  describeChange,
  isAnyMet,
  isOpen,
  type Memory,
} from './records.js';
import type { Condition, Rule } from './rule-sets.js';

/** Shared by all evaluations of a process. */
export type EvaluationDeps = ReturnType<typeof createEvaluation>;

/** Why a rule is looked at. */
export interface Cause {
  /** Streams of one request. */
  step?: Step;
  /** Since when the time of streams of the future may have come (epoch seconds). */
  due_since?: number;
  /** From when on absence counts at the earliest (epoch seconds), unless it is counted already. */
  floor: number;
  /** Kinds of conditions that stay as they were remembered: the next stream decides them. */
  kept?: readonly Condition['kind'][];
  /** Kinds of conditions that may end, but do not begin. */
  ending?: readonly Condition['kind'][];
}

const max_attempts = 20;
/** A record without an alarm that should have one is looked at after this time, in case its process has ended. */
const raise_s = 1;

/**
 * Brings the record of a rule and a device to what the conditions say, one conditional write after the other, until nothing
 * changes: what this process or another writes at the same time is read again.
 * @param last the current record, as it was read before @returns the current record
 */
export async function refreshRecord(
  deps: EvaluationDeps,
  rule: Rule,
  device: SendingDevice,
  cause: Cause,
  last: AlarmRecord | undefined,
): Promise<AlarmRecord | undefined> {
  const readFacts = (isTrusted = false) =>
    createFacts(deps.reader, device, deps.clock() / 1000, { ...cause, isTrusted });
  let { stream_revision } = device;
  let record = last;
  let memory: Memory | undefined;
  // a new record is looked at again with what is stored, where what was met by mistake does not last
  const isLasting = rule.conditions.some((condition) => condition.kind === 'value' && condition.isLasting);
  let facts = readFacts(record === undefined && !isLasting);
  for (let attempt = 0; attempt < max_attempts; attempt++) {
    const next = await remember(rule, facts, cause, record ?? memory);
    const write = await planWrite(deps, { rule, device, facts, cause, record, next });
    if (write === undefined) return record;
    await keepMarked(deps, device, { record, next, now: facts.now });
    const isNew = record === undefined;
    const written = await write();
    // an alarm that ends leaves what its conditions remember to the next record
    memory = written === undefined ? undefined : next;
    if (written === undefined || isNew) facts = readFacts();
    else {
      // a stream that came after the facts may have been evaluated with the record as it was before this write
      const revision = (await deps.reader.findDevice(device._id))?.stream_revision;
      if (stream_revision === undefined || revision?.equals(stream_revision) !== true) facts = readFacts();
      stream_revision = revision;
    }
    record = written === undefined ? await deps.records.find(buildWatchKey(rule._id, device._id)) : currentOf(written);
  }
  throw new AppError('database', {}, { cause: new Error(`the alarms of ${device.id_developer} do not settle`) });
}

function currentOf(record: AlarmRecord | 'none'): AlarmRecord | undefined {
  return record !== 'none' && record.is_current === true ? record : undefined;
}

/** Marks the device before a record says for the first time that a condition is met, unless its streams have just done so. */
async function keepMarked(
  { setMark }: EvaluationDeps,
  { _id, account, condition_met_at }: SendingDevice,
  { record, next, now }: { record: AlarmRecord | undefined; next: Memory; now: number },
): Promise<void> {
  const isNew = isAnyMet(next) && !(record !== undefined && isAnyMet(record));
  if (isNew && !isFresh(condition_met_at, now)) await setMark({ _id, account, now });
}

/** Evaluates the conditions. @param last what was remembered before */
async function remember(
  rule: Rule,
  facts: Facts,
  { floor, kept = [], ending = [] }: Cause,
  last: Memory | undefined,
): Promise<Memory> {
  const areSame = last?.conditions_key === rule.conditions_key;
  // changed conditions have to be evaluated
  const isKnown = areSame || last === undefined;
  const results: readonly Result[] = await Promise.all(
    rule.conditions.map((condition, index) => {
      const isMet = areSame && last.met[index] === true;
      if (isKnown && (kept.includes(condition.kind) || (!isMet && ending.includes(condition.kind)))) return { isMet };
      return evaluate(condition, facts, { isMet, seen: (areSame ? last.seen[index] : undefined) ?? floor, floor });
    }),
  );
  const met = results.map((result) => result.isMet);
  const holds = rule.match === 'all' ? met.every(Boolean) : met.some(Boolean);
  const since = holds ? ((areSame ? last.since : undefined) ?? facts.now) : undefined;
  const dues = results.flatMap(({ due_at }) => due_at ?? []);
  if (since !== undefined && since + rule.for_s > facts.now) dues.push(since + rule.for_s);
  return {
    conditions_key: rule.conditions_key,
    met,
    seen: results.map((result) => result.seen ?? null),
    since,
    due_at: dues.length === 0 ? undefined : Math.min(...dues),
  };
}

interface Result {
  isMet: boolean;
  seen?: number;
  due_at?: number;
}

interface LastResult {
  isMet: boolean;
  seen: number;
  floor: number;
}

async function evaluate(condition: Condition, facts: Facts, last: LastResult): Promise<Result> {
  if (condition.kind === 'status') return { isMet: condition.statuses.has(await facts.findStatus()) };
  if (condition.kind === 'value') {
    const found = await facts.findLast(condition.path);
    return { isMet: found !== undefined && condition.holds(found.value, last.isMet) };
  }
  // at each attempt the same, unlike the clock
  const receipt = facts.hasPath(condition.path) ? last.floor : await facts.findReceipt(condition.path, last.seen);
  const seen = Math.max(last.seen, receipt ?? 0);
  const due_at = seen + condition.seconds;
  return due_at <= facts.now ? { isMet: true, seen } : { isMet: false, seen, due_at };
}

interface Situation {
  rule: Rule;
  device: SendingDevice;
  facts: Facts;
  cause: Cause;
  record: AlarmRecord | undefined;
  next: Memory;
}

/** Reports whether a rule has held for long enough, so that what has no alarm yet gets one. @param now epoch seconds */
export function isRaisable(rule: Rule, { state, since }: Pick<AlarmRecord, 'state' | 'since'>, now: number): boolean {
  return state === undefined && since !== undefined && since + rule.for_s <= now;
}

/** A conditional write. @returns the record after it, undefined if another write was first */
type Write = () => Promise<AlarmRecord | 'none' | undefined>;

/** Chooses the write that a record needs. @returns undefined if it needs none */
async function planWrite(deps: EvaluationDeps, situation: Situation): Promise<Write | undefined> {
  const { store, records } = deps;
  const { rule, facts, record, next } = situation;
  const isNeeded = next.met.some(Boolean) || next.seen.some((seen) => seen !== null);
  const isDue = isRaisable(rule, next, facts.now);
  if (record === undefined) {
    if (!isDue && !isNeeded) return undefined;
    // raised by the next write: alarms may have come and gone since the values were read, and an insert would not notice
    const fresh = { ...(await buildRecord(deps, situation)), ...(isDue && { due_at: facts.now + raise_s }) };
    const { insert } = store.loader(alarm.plural);
    // undefined if the rule and device have a current record
    return () => insert(fresh as never).then(() => fresh, ignore(isDuplicate));
  }
  if (record.state === undefined && !isNeeded) return () => records.delete(record);
  if (record.state === undefined && isDue) {
    const set = { ...next, ...(await raise(situation, record)) };
    return () => records.update(record, { set, unset: unsetOf(next) });
  }
  const holds = next.since !== undefined;
  if (isOpen(record) && !holds) return () => records.update(record, buildClosing(record, facts.now));
  // closed by a person: kept as long as it holds, and raised again by the next stream
  if (record.state === 'closed' && (!holds || (await isRenewed(rule, facts))))
    return () => records.update(record, buildRetirement(record));
  const { conditions_key, met, seen, since, due_at } = record;
  if (isDeepStrictEqual({ conditions_key, met, seen, since, due_at }, next)) return undefined;
  return () => records.update(record, { set: next, unset: unsetOf(next) });
}

/** Reports whether one of the streams that are looked at has a path of the rule. */
async function isRenewed({ conditions }: Rule, facts: Facts): Promise<boolean> {
  for (const condition of conditions) if ('path' in condition && (await facts.isSent(condition.path))) return true;
  return false;
}

function unsetOf({ since, due_at }: Memory): ('since' | 'due_at')[] {
  return [...(since === undefined ? ['since' as const] : []), ...(due_at === undefined ? ['due_at' as const] : [])];
}

async function buildRecord(
  { store: { db }, nameAncestors }: EvaluationDeps,
  { rule, device, next: { since, due_at, ...next } }: Situation,
): Promise<AlarmRecord> {
  const _id = db.newId();
  return {
    _id,
    tenant: rule.account,
    rule_id: rule._id,
    rule: rule.id_developer,
    parent: device._id,
    device: device.id_developer,
    ancestors: device.ancestors,
    ...(await nameAncestors(device.ancestors)),
    is_current: true,
    watch_key: buildWatchKey(rule._id, device._id),
    revision: 0,
    ...next,
    ...(since !== undefined && { since }),
    ...(due_at !== undefined && { due_at }),
  };
}

/** Builds the members of an alarm that is raised. */
async function raise(situation: Situation, record: AlarmRecord): Promise<Partial<AlarmRecord>> {
  const { rule, facts, next, cause } = situation;
  // what held before has only waited for its alarm
  const isDeadline = rule.for_s > 0 || (record.since === undefined && (cause.kept ?? cause.ending) !== undefined);
  const at = isDeadline ? undefined : await findDecidingAt(rule, facts, next.met);
  const alarmMembers = {
    account: rule.account,
    id: String(record._id),
    severity: rule.severity,
    gravity: gravityOf(rule.severity),
    state: 'active' as const,
    values: await collectValues(rule, facts),
    ...(at !== undefined && { at }),
    raised_at: Math.floor(facts.now),
  };
  return { ...alarmMembers, last_change: describeChange('raised', { ...record, ...alarmMembers }) };
}

/** Finds the greatest `at` of the streams that meet conditions: of those that are looked at, if there are any. */
async function findDecidingAt(
  { conditions }: Rule,
  facts: Facts,
  met: readonly boolean[],
): Promise<number | undefined> {
  const paths = conditions.flatMap((each, index) => (each.kind === 'value' && met[index] ? [each.path] : []));
  const values = (await Promise.all(paths.map(facts.findLast))).filter((value) => value !== undefined);
  const sent = values.filter(({ isSent }) => isSent);
  const [first, ...others] = (sent.length > 0 ? sent : values).map(({ at }) => at);
  return first && Math.max(first, ...others);
}

const max_value_length = 200;
const cut = new RegExp(`^.{0,${max_value_length}}`, 'su');

/** The last values by path, as the conditions see them, without what may be large: each of 200 rules stores them. */
async function collectValues({ conditions }: Rule, facts: Facts): Promise<object> {
  const values: Record<string, unknown> = Object.create(null);
  for (const condition of conditions) {
    if (condition.kind === 'absent') continue;
    if (condition.kind === 'value') {
      const value = (await facts.findLast(condition.path))?.value;
      const isShown = value !== undefined && (typeof value !== 'object' || value === null);
      if (isShown) values[condition.path.text] = typeof value === 'string' ? cut.exec(value)?.[0] : value;
      // not instead of the value at a path of this name
    } else if (!('status' in values)) values.status = await facts.findStatus();
  }
  return values;
}

/** Creates what all evaluations of a process share. @param clock epoch milliseconds */
export function createEvaluation(store: Store, clock: () => number) {
  const { db } = store;
  return {
    store,
    clock,
    nameAncestors: createAncestorNames(store),
    reader: createFactReader(db),
    records: createRecordBatches(db),
    setMark: createMarker(db),
  };
}
