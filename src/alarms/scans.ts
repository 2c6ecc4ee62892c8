import type { mongo } from 'mongoose';
import type { Database, Log, StoredObject } from '../db/database.js';
import { createDueRunner } from '../db/due-work.js';
import type { Id } from '../db/ids.js';
import { type LeasedJob, startPeriodicJob } from '../db/leased-job.js';
import { findMany, findOne } from '../db/raw-find.js';
import { groupBy } from '../lib/group-by.js';
import { alarmscan, device } from '../resources/index.js';
import { deviceProjection, toWatched, type WatchedDevice } from './devices.js';
import { scheduleNextDue } from './due-devices.js';
import type { Cause } from './evaluate.js';
import { type AlarmRecord, recordsOf } from './records.js';
import { batch_size, type ReviewDeps, refreshDevices, updatePlace, updateRecords } from './review.js';
import type { Rule, RuleSet } from './rule-sets.js';

/** The kind of change: of a rule, an object above devices, devices, or something that saved filters compare. */
export type ScanKind = 'rule' | 'below' | 'moved' | 'updated' | 'created' | 'status' | 'members';

/** A request to look at records, or at devices without a stream, because something was changed. */
export interface ScanRequest {
  _id: string;
  account: string;
  kind: ScanKind;
  /** Identifiers of rules or devices, internal ids of objects; of `members`: devices, or none for all. */
  targets: readonly (string | Id)[];
}

/** Records that may have to end are looked at twice, as other processes know a change late; then devices. */
type Step = 'records' | 'records again' | 'devices';

interface Scan extends ScanRequest {
  step: Step;
  /** Epoch seconds. */
  due_at: number;
  /** The last record or device of this step that was looked at. */
  after?: Id | string | undefined;
  /** Differs after each request, so that one during the scan is not lost. */
  requested: string;
}

const twice = ['records', 'records again'] as const;
const stepsOf: Readonly<Record<ScanKind, readonly Step[]>> = {
  ...{ rule: [...twice, 'devices'], below: [...twice, 'devices'], moved: twice, members: twice },
  ...{ updated: ['devices'], created: ['devices'], status: ['devices'] },
};

const job = 'alarm-scans';
const look_period_ms = 1000;
/** Other processes may use former rules and places of devices for up to 2 s. */
const again_s = 3;
const max_merged = 100;
const piece_ms = 100;
const min_devices = 10;

const scansOf = (db: Database) => db.collection<Scan>(alarmscan.plural);

/** Requests scans, which go on after a crash. */
export async function scheduleScans(db: Database, requests: readonly ScanRequest[]): Promise<void> {
  if (requests.length === 0) return;
  const requested = String(db.newId());
  const writes = requests.map(({ _id, ...request }) => {
    const set = { ...request, step: stepsOf[request.kind][0], due_at: Date.now() / 1000, requested };
    return { updateOne: { filter: { _id }, update: { $set: set, $unset: { after: '' } }, upsert: true } };
  });
  await scansOf(db).bulkWrite(writes as mongo.AnyBulkWriteOperation<Scan>[], { ordered: false });
  db.wakeUps?.emit(job);
}

/** Finds out when records are to be looked at first (epoch seconds). */
export async function findFirstCheck(db: Database): Promise<number | undefined> {
  const filter = { step: { $ne: 'devices' as const } };
  return (await findOne(scansOf(db), filter, { sort: { due_at: 1 }, projection: { due_at: 1 } }))?.due_at;
}

/** Carries out the requested scans on one instance (reference/alarms.md#evaluation). */
export function startAlarmScans(deps: ReviewDeps & { log: Log }): LeasedJob {
  const { log } = deps;
  const { db } = deps.store;
  const runDue = createDueRunner<Scan>({
    db,
    open: () => scansOf(db),
    account: 'account',
    piece_size: max_merged,
    run: (due) => runScans(deps, due),
    log,
    failure: 'alarms are not evaluated yet; retrying',
  });
  // processes forget former rules by real time
  const work = () => runDue(Date.now() / 1000);
  return startPeriodicJob({ db, log, name: job, period_ms: look_period_ms, mayRun: db.isClockRight, work });
}

/** Carries on with scans of one account; those of one target that have come equally far are looked at together. @returns whether there is more to do */
async function runScans(deps: ReviewDeps, scans: readonly Scan[]): Promise<boolean> {
  const end = performance.now() + piece_ms;
  let isMore = false;
  const groups = groupBy(scans, ({ _id, kind, step, after, targets }) =>
    [kind, step, after, targets.length === 1 ? '' : _id].join(),
  );
  for (const [first, ...others] of groups.values()) {
    if (first === undefined || performance.now() > end) return true;
    const group = [first, ...others];
    const part = { ...first, targets: group.flatMap(({ targets }) => targets) };
    const rules = await deps.loadRules(first.account);
    const last = await (first.step === 'devices' ? lookAtDevices : checkRecords)(deps, part, rules);
    if (last !== undefined) isMore = true;
    const update = buildProgress(first, last);
    const writes = group.map(({ _id, requested }) => {
      const filter = { _id, requested };
      return update === undefined ? { deleteOne: { filter } } : { updateOne: { filter, update } };
    });
    await scansOf(deps.store.db).bulkWrite(writes as mongo.AnyBulkWriteOperation<Scan>[], { ordered: false });
  }
  return isMore;
}

/** Builds the update of how far a scan has come. @param last undefined at the end of a step @returns undefined at its end */
function buildProgress({ kind, step }: Scan, last: Scan['after']): object | undefined {
  const now = Date.now() / 1000;
  if (last !== undefined) return { $set: { after: last, due_at: now } };
  const next = stepsOf[kind][stepsOf[kind].indexOf(step) + 1];
  const due_at = next === 'records again' ? now + again_s : now;
  return next && { $set: { step: next, due_at }, $unset: { after: '' } };
}

/** Scans that have come equally far. */
type Part = Pick<Scan, 'account' | 'kind' | 'targets' | 'after'>;

/** Ends records whose rule or device is gone, disabled or elsewhere. @returns the last one that was looked at, if there may be more */
async function checkRecords(deps: ReviewDeps, part: Part, rules: RuleSet): Promise<Id | undefined> {
  const after = part.after === undefined ? {} : { _id: { $gt: part.after as Id } };
  const query = { ...selectRecords(part, rules), ...after, is_current: true as const };
  const records = await findMany(recordsOf(deps.store.db), query, { sort: { _id: 1 }, limit: batch_size });
  await updateRecords(deps, records, rules, (record, _rule, sender) => updatePlace(deps, record, sender));
  return records.length < batch_size ? undefined : records.at(-1)?._id;
}

function selectRecords({ account: tenant, kind, targets }: Part, { rules }: RuleSet): mongo.Filter<AlarmRecord> {
  const named = { $in: targets as readonly string[] };
  if (kind === 'rule') return { tenant, rule: named };
  if (kind === 'below') return { ancestors: { $in: targets as readonly Id[] } };
  if (kind === 'moved') return { tenant, device: named };
  const filtered = rules.filter(({ saved_filter }) => saved_filter !== undefined);
  const rule = { $in: filtered.map(({ id_developer }) => id_developer) };
  return { tenant, rule, ...(targets.length > 0 && { device: named }) };
}

/** Evaluates rules at devices by identifier. @returns the last device that was looked at, if there may be more */
async function lookAtDevices(deps: ReviewDeps, part: Part, rules: RuleSet): Promise<string | undefined> {
  const { db } = deps.store;
  const now = deps.clock() / 1000;
  const selected = rules.rules.filter(selectRule(part));
  const hasMoved = part.kind !== 'created' && part.kind !== 'status' && rules.rules.length > 0;
  if (selected.length === 0 && (part.kind === 'rule' || !hasMoved)) return undefined;
  const after = part.after === undefined ? {} : { id_developer: { $gt: part.after } };
  const query = { $and: [{ account: part.account }, selectDevices(part, selected), after] };
  const limit = Math.max(min_devices, Math.floor(batch_size / Math.max(1, selected.length)));
  const options = { projection: deviceProjection, sort: { id_developer: 1 }, limit } as const;
  const stored = await findMany(db.collection<StoredObject>(device.plural), query, options);
  const devices = await toWatched(db, stored);
  const selection = { rulesOf: () => selected, causeOf: (each: WatchedDevice) => causeOf(part.kind, each, now) };
  await Promise.all([refreshDevices(deps, devices, selection), hasMoved && scheduleNextDue(db, devices, now)]);
  return stored.length < limit ? undefined : stored.at(-1)?.id_developer;
}

/** Selects the rules that a change may affect at devices without a stream. */
function selectRule({ kind, targets }: Part): (rule: Rule) => boolean {
  if (kind === 'rule') return ({ id_developer }) => targets.includes(id_developer);
  if (kind === 'status') return isWatchingStatus;
  return kind === 'created' ? (rule) => isWatchingAbsence(rule) || isWatchingStatus(rule) : isWatchingAbsence;
}

/** Reports whether a rule watches devices that send nothing. */
export function isWatchingAbsence({ conditions }: Rule): boolean {
  return conditions.some(({ kind }) => kind === 'absent');
}

/** Reports whether a rule watches the status of devices. */
export function isWatchingStatus({ conditions }: Rule): boolean {
  return conditions.some(({ kind }) => kind === 'status');
}

function selectDevices({ kind, targets }: Part, rules: readonly Rule[]): object {
  if (kind === 'below') return { ancestors: { $in: targets } };
  if (kind !== 'rule') return { id_developer: { $in: targets } };
  const filters = rules.map(({ filter }) => filter);
  return filters.some((filter) => Object.keys(filter).length === 0) ? {} : { $or: filters };
}

/** A new rule or device looks at what is stored; a device that comes under a rule in another way starts without a state. */
function causeOf(kind: ScanKind, { created_at }: WatchedDevice, now: number): Cause {
  if (kind === 'rule' || kind === 'created') return { floor: created_at };
  return { floor: now, kept: kind === 'status' ? ['value'] : ['value', 'status'] };
}
