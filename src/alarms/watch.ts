import mongoose from 'mongoose';
import { formatClusterTime, parseClusterTime } from '../db/cluster-time.js';
import { type Collection, type Database, type Log, read_limit_ms } from '../db/database.js';
import { deleteInChunks } from '../db/delete-in-chunks.js';
import { type LeasedJob, startLeasedJob } from '../db/leased-job.js';
import { runInParallel } from '../lib/parallel.js';
import { keyOfId } from '../objects/ancestors.js';
import { findNextAt } from '../objects/stream-values.js';
import type { StoredEvent } from '../resources/event.js';
import { alarm, device, event, isAboveDevices, model, resources, savedFilter } from '../resources/index.js';
import { findDevices, findNamedDevices } from './devices.js';
import { dueDevicesOf, scheduleNextDue } from './due-devices.js';
import {
  batch_size,
  checkRecords,
  createRuleLookup,
  type LoadRules,
  type ReviewDeps,
  settleDevices,
  settleDueRecords,
} from './review.js';
import type { Rule } from './rule-sets.js';
import { isWatchingAbsence, scheduleScan } from './scans.js';

/** The last event of the log that was followed. */
interface Position {
  _id: 'position';
  event: string;
}

/** Observers of the watch. */
export interface WatchMetrics {
  /** Time (epoch milliseconds) up to which all that was due has been reviewed; undefined while another instance watches. */
  watchedUntil(moment: number | undefined): void;
}

interface Deps extends ReviewDeps {
  log: Log;
  metrics: WatchMetrics;
}

const look_period_ms = 400;
const events_limit = 1000;
/** Records are reviewed again after this time: processes know changes of rules and of the hierarchy 2 s late. */
const second_review_ms = 3000;
/** A new watch begins so far before the end of a former one, which may have been killed. */
const step_back_s = 10;
const purge_period_ms = 3000;
const retention_s = 90 * 86_400;
/** Devices whose next stream of the future is looked up at the same time. */
const max_concurrent = 8;

const positionsOf = (db: Database): Collection<Position> => db.collection<Position>('alarm_watch');
const collectionOfResource: ReadonlyMap<string, string> = new Map(
  resources.flatMap(({ name, plural }) => (isAboveDevices(plural) ? [[name, plural]] : [])),
);

/**
 * Looks at rules without a stream (reference/alarms.md#evaluation): when the time of a record has come, and when the event log
 * reports a change of a rule, a device, or what is above it. One instance does so.
 */
export function startAlarmWatch(deps: Deps): LeasedJob {
  const { store, log, metrics } = deps;
  const { db } = store;
  const leave = () => metrics.watchedUntil(undefined);
  return startLeasedJob({
    db,
    log,
    name: 'alarm-watch',
    onElsewhere: leave,
    async work(turn) {
      const reviews = createReviews();
      metrics.watchedUntil(Date.now());
      await stepBack(db);
      let purged_at = 0;
      while (turn.isLeaseHeld()) {
        const begun_at = Date.now();
        const now = deps.clock() / 1000;
        const isBehind = await followEvents(deps, reviews.request);
        await reviews.runDue();
        const isBusy = (await settleDueRecords(deps, now)) || (await settleDueDevices(deps, now));
        if (Date.now() - purged_at > purge_period_ms) {
          await removeOldAlarms(db, now);
          purged_at = Date.now();
        }
        if (isBehind || isBusy) continue;
        metrics.watchedUntil(begun_at);
        await turn.pause(look_period_ms);
      }
      leave();
    },
  });
}

type Review = () => Promise<void>;

/** Runs reviews at once, and again when all processes know the change. */
function createReviews() {
  const waiting: { due_at: number; review: Review }[] = [];
  return {
    async request(review: Review): Promise<void> {
      await review();
      waiting.push({ due_at: Date.now() + second_review_ms, review });
    },
    async runDue(): Promise<void> {
      while (waiting[0] !== undefined && waiting[0].due_at <= Date.now()) await waiting.shift()?.review();
    },
  };
}

/** Goes back to the events whose second review a former watch may not have reached. */
async function stepBack(db: Database): Promise<void> {
  const { event: last = '' } = (await positionsOf(db).findOne({ _id: 'position' })) ?? {};
  if (last === '') return;
  const t = parseClusterTime(last).getHighBitsUnsigned() - step_back_s;
  const first = formatClusterTime(new mongoose.mongo.Timestamp({ t, i: 0 }));
  await positionsOf(db).updateOne({ _id: 'position', event: last }, { $set: { event: first } });
}

/** Follows the event log. @returns whether there may be more events */
async function followEvents(deps: Deps, request: (review: Review) => Promise<void>): Promise<boolean> {
  const { db } = deps.store;
  const log = db.collection<StoredEvent>(event.plural);
  const position = await positionsOf(db).findOne({ _id: 'position' });
  const last = position?.event ?? (await findLastId(db));
  const options = { sort: { _id: 1 }, limit: events_limit, maxTimeMS: read_limit_ms } as const;
  const events = await log.find({ _id: { $gt: last } }, { ...options, readConcern: { level: 'majority' } }).toArray();
  const end = events.at(-1)?._id ?? last;
  const following = { ...deps, findRules: createRuleLookup(deps.loadRules), request };
  await followDevices(following, events);
  const seen = new Set<string>();
  for (const logged of events) {
    const { type, account, resource, id_developer, data } = logged;
    if (resource === alarm.name || resource === device.name) continue;
    const key = JSON.stringify([type, account, id_developer, data]);
    if (seen.has(key)) continue;
    seen.add(key);
    await followEvent(following, logged);
  }
  if (position === null || events.length > 0)
    await positionsOf(db).updateOne({ _id: 'position' }, { $set: { event: end } }, { upsert: true });
  return events.length === events_limit;
}

/** Follows the events of devices, those of a kind together. */
async function followDevices(following: Following, events: readonly StoredEvent[]): Promise<void> {
  for (const { account, ids } of groupDevices(events, ({ type }) => isMoveOrEnd(type) && 'changed'))
    await following.request(() => checkRecords(following, { tenant: account, device: { $in: ids } }));
  for (const { account, ids } of groupDevices(events, ({ type }) => type === 'device.status_changed' && type))
    await followMembers(following, { account, resource: device.name, ids });
  for (const { kind, account, ids } of groupDevices(events, ({ type }) => type !== 'device.deleted' && type))
    await lookAtDevices(following, kind, account, ids);
  const isMove = ({ type, data }: StoredEvent) => type === 'device.updated' && isMoveOrSwitch(data) && 'moved';
  for (const { account, ids } of groupDevices(events, isMove)) {
    if ((await following.findRules(account)).rules.length === 0) continue;
    const { store, clock } = following;
    await scheduleNextDue(store.db, await findNamedDevices(store.db, account, ids), clock() / 1000);
  }
}

/** Reports whether the place or state of a device may have changed, or it is gone. */
function isMoveOrEnd(type: string): boolean {
  return type !== 'device.status_changed' && type !== 'device.created';
}

interface DeviceGroup {
  kind: string;
  account: string;
  ids: readonly string[];
}

/** Groups the devices of events by kind and account. @param kindOf false for those that are left out */
function groupDevices(
  events: readonly StoredEvent[],
  kindOf: (event: StoredEvent) => string | false,
): readonly DeviceGroup[] {
  const groups = new Map<string, { kind: string; account: string; ids: Set<string> }>();
  for (const logged of events) {
    const kind = logged.resource === device.name && kindOf(logged);
    if (kind === false) continue;
    const { account, id_developer } = logged;
    const key = `${kind} ${account}`;
    const group = groups.get(key) ?? { kind, account, ids: new Set() };
    groups.set(key, group);
    group.ids.add(id_developer);
  }
  return [...groups.values()].map((group) => ({ ...group, ids: [...group.ids] }));
}

async function findLastId(db: Database): Promise<string> {
  const options = { sort: { _id: -1 }, projection: { _id: 1 }, maxTimeMS: read_limit_ms } as const;
  return (await db.collection<StoredEvent>(event.plural).findOne({}, options))?._id ?? '';
}

interface Following extends Deps {
  /** Rules of accounts, loaded once for the events of one look. */
  findRules: LoadRules;
  request(review: Review): Promise<void>;
}

async function followEvent(
  following: Following,
  { type, account, resource, id_developer, data }: StoredEvent,
): Promise<void> {
  const { store, request } = following;
  if (resource === 'alarmrule') {
    await request(() => checkRecords(following, { tenant: account, rule: id_developer }));
    const rule = await store.loader('alarmrules').locate({ account, limit: undefined }, id_developer);
    if (rule !== undefined) await scheduleScan(store.db, { account, kind: 'rule', target: rule._id });
    return;
  }
  if (resource === savedFilter.name || resource === model.name)
    await followMembers(following, { account, resource, ids: [id_developer] });
  const plural = collectionOfResource.get(resource);
  if (plural === undefined || !type.endsWith('.updated') || !isMoveOrSwitch(data)) return;
  const node = await store.loader(plural).locate({ account, limit: undefined }, id_developer);
  if (node === undefined) return;
  await request(() => checkRecords(following, { ancestors: node._id }));
  await scheduleScan(store.db, { account, kind: 'below', target: node._id });
}

/** Ends the alarms of rules by saved filters whose devices are no longer selected; a changed filter is applied again. */
async function followMembers(
  following: Following,
  { account, resource, ids }: { account: string; resource: string; ids: readonly string[] },
): Promise<void> {
  const { store, findRules, request } = following;
  const isFilter = resource === savedFilter.name;
  const { rules } = await findRules(account);
  for (const { _id, saved_filter } of rules) {
    if (saved_filter === undefined || (isFilter && !ids.includes(saved_filter))) continue;
    const ofDevices = resource === device.name ? { device: { $in: ids } } : {};
    await request(() => checkRecords(following, { tenant: account, rule_id: _id, ...ofDevices }));
    if (isFilter) await scheduleScan(store.db, { account, kind: 'rule', target: _id });
  }
}

/** Reports whether an update of an object may have changed which devices are below it, or take streams. */
function isMoveOrSwitch(data: object | undefined): boolean {
  const { changed = [] } = (data ?? {}) as { changed?: readonly string[] };
  return changed.some((field) => field === 'enabled' || field.startsWith('id_'));
}

/** Evaluates what no stream of devices decides: their status, and the absence of streams. */
async function lookAtDevices(
  following: Following,
  type: string,
  account: string,
  ids: readonly string[],
): Promise<void> {
  const { store, findRules } = following;
  const rules = (await findRules(account)).rules.filter((rule) => isWithoutStream(rule, type));
  if (rules.length === 0) return;
  const devices = await findNamedDevices(store.db, account, ids);
  const now = following.clock() / 1000;
  await settleDevices(following, devices, {
    rulesOf: () => rules,
    causeOf({ created_at }) {
      if (type === 'device.created') return { floor: created_at };
      return { floor: now, kept: type === 'device.status_changed' ? ['value'] : ['value', 'status'] };
    },
  });
}

/** Reports whether a rule is looked at for an event of a device; after an update the next stream decides the status. */
function isWithoutStream(rule: Rule, type: string): boolean {
  const watchesStatus = rule.conditions.some(({ kind }) => kind === 'status');
  if (type === 'device.status_changed') return watchesStatus;
  return isWatchingAbsence(rule) || (type === 'device.created' && watchesStatus);
}

/** Evaluates devices whose streams of the future have come to their time. @returns whether there may be more */
async function settleDueDevices(deps: Deps, now: number): Promise<boolean> {
  const { db } = deps.store;
  const options = { sort: { due_at: 1 }, limit: batch_size, maxTimeMS: read_limit_ms } as const;
  const due = await dueDevicesOf(db)
    .find({ due_at: { $lte: now } }, options)
    .toArray();
  if (due.length === 0) return false;
  const devices = await findDevices(
    db,
    due.map(({ _id }) => _id),
  );
  const findRules = createRuleLookup(deps.loadRules);
  const sets = new Map(await Promise.all(due.map(async ({ account }) => [account, await findRules(account)] as const)));
  const dueTimes = new Map(due.map(({ _id, due_at }) => [keyOfId(_id), due_at]));
  await settleDevices(deps, [...devices.values()], {
    rulesOf: (each) => sets.get(each.account)?.covering(each).rules ?? [],
    causeOf: ({ _id }) => ({ floor: now, due_since: dueTimes.get(keyOfId(_id)) ?? now }),
  });
  await runInParallel(due, max_concurrent, async ({ _id, due_at }) => {
    const each = devices.get(keyOfId(_id));
    const next = each && (await findNextAt(db, each, now));
    if (next === undefined) await dueDevicesOf(db).deleteOne({ _id, due_at });
    else await dueDevicesOf(db).updateOne({ _id, due_at }, { $set: { due_at: next } });
  });
  return due.length === batch_size;
}

/** Deletes alarms that were closed long ago (reference/alarms.md#alarm-fields). @param now epoch seconds */
async function removeOldAlarms(db: Database, now: number): Promise<void> {
  await deleteInChunks(
    db.collection(alarm.plural),
    { closed_at: { $lt: now - retention_s } },
    { sort: { closed_at: 1 } },
  );
}
