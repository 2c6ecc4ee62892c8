import type { Database, Log } from '../db/database.js';
import { createDueRunner } from '../db/due-work.js';
import type { Id } from '../db/ids.js';
import { type LeasedJob, startPeriodicJob } from '../db/leased-job.js';
import { findMany, findOne } from '../db/raw-find.js';
import { splitIntoBatches } from '../lib/batches.js';
import type { StoredEvent } from '../resources/event.js';
import { alarmrule, device, event, isAboveDevices, model, resources, savedFilter } from '../resources/index.js';
import { type DueDevice, dueDevicesOf, refreshDueDevices } from './due-devices.js';
import { type AlarmRecord, recordsOf } from './records.js';
import { batch_size, type ReviewDeps, refreshDueRecords } from './review.js';
import type { Rule, RuleSet } from './rule-sets.js';
import {
  findFirstCheck,
  isWatchingAbsence,
  isWatchingStatus,
  type ScanKind,
  type ScanRequest,
  scheduleScans,
} from './scans.js';

/** The last event of the log that was followed. */
interface Position {
  _id: 'position';
  event: string;
}

/** Progress of the watch during its turn: only the holder of the lease follows events and requests scans. */
interface Progress {
  /** The last event that was followed. */
  event?: string | undefined;
  /** No scan of records was left when it last looked, and none was requested since. */
  areChecked: boolean;
}

export interface WatchMetrics {
  /** Time (epoch milliseconds) up to which all that was due has been reviewed; undefined while another instance watches. */
  watchedUntil(moment: number | undefined): void;
}

interface Deps extends ReviewDeps {
  log: Log;
  metrics: WatchMetrics;
}

const look_period_ms = 1000;
const events_limit = 1000;
/** Devices of one scan. */
const max_targets = 100;

const positionsOf = (db: Database) => db.collection<Position>('alarm_watch');
const followed = new Set([alarmrule.name, savedFilter.name, model.name, device.name]);
const collectionOfResource: ReadonlyMap<string, string> = new Map(
  resources.flatMap(({ name, plural }) => (isAboveDevices(plural) ? [[name, plural]] : [])),
);

/**
 * Looks at rules without a stream (reference/alarms.md#evaluation): when the time of a record or of a stream has come, and, by
 * scans, when the event log reports a change of a rule, a device, or what is above it. One instance does so.
 */
export function startAlarmWatch(deps: Deps): LeasedJob {
  const { store, log, metrics } = deps;
  const { db } = store;
  const shared = { db, piece_size: batch_size, log, failure: 'alarms are not evaluated yet; retrying' };
  const runRecords = createDueRunner<AlarmRecord>({
    ...{ ...shared, open: () => recordsOf(db), account: 'tenant' },
    run: (due, now) => refreshDueRecords(deps, due, now),
  });
  const runDevices = createDueRunner<DueDevice>({
    ...{ ...shared, open: () => dueDevicesOf(db), account: 'account' },
    run: (due, now) => refreshDueDevices(deps, due, now),
  });
  const progress: Progress = { areChecked: false };
  let watched_until: number | undefined;
  return startPeriodicJob({
    ...{ db, log, name: 'alarm-watch', period_ms: look_period_ms, mayRun: db.isClockRight },
    onElsewhere() {
      Object.assign(progress, { event: undefined, areChecked: false });
      watched_until = undefined;
      metrics.watchedUntil(undefined);
    },
    async work() {
      const begun_at = Date.now();
      watched_until ??= begun_at;
      const now = deps.clock() / 1000;
      const areBusy = await Promise.all([followEvents(deps, progress), runRecords(now), runDevices(now)]);
      const isBusy = areBusy.includes(true);
      if (!isBusy) {
        const first = progress.areChecked ? undefined : await findFirstCheck(db);
        progress.areChecked = first === undefined;
        watched_until = Math.min(begun_at, 1000 * (first ?? Number.POSITIVE_INFINITY));
      }
      metrics.watchedUntil(watched_until);
      return isBusy;
    },
  });
}

/** Follows the event log: what changes of rules and devices ask for is requested. @returns whether there may be more events */
async function followEvents(deps: Deps, progress: Progress): Promise<boolean> {
  const { db } = deps.store;
  const log = db.collection<StoredEvent>(event.plural);
  const stored = progress.event ?? (await positionsOf(db).findOne({ _id: 'position' }))?.event;
  const last = stored ?? (await findLastId(db));
  const filter = { _id: { $gt: last } };
  if (progress.event !== undefined && !(await db.findDue([{ collection: log, filter }]))) return false;
  const options = { sort: { _id: 1 }, limit: events_limit, readConcern: { level: 'majority' } } as const;
  const events = await findMany(log, filter, options);
  const requests = await findRequests(deps, events);
  await scheduleScans(db, requests);
  if (requests.length > 0) progress.areChecked = false;
  const end = events.at(-1)?._id ?? last;
  progress.event = end;
  if (stored === undefined || events.length > 0)
    await positionsOf(db).updateOne({ _id: 'position' }, { $set: { event: end } }, { upsert: true });
  return events.length === events_limit;
}

async function findLastId(db: Database): Promise<string> {
  const options = { sort: { _id: -1 }, projection: { _id: 1 } } as const;
  return (await findOne(db.collection<StoredEvent>(event.plural), {}, options))?._id ?? '';
}

/** Finds the scans that events ask for. Devices of one kind are looked at together. */
async function findRequests(deps: Deps, events: readonly StoredEvent[]): Promise<ScanRequest[]> {
  const sets = new Map<string, RuleSet>();
  const requests = new Map<string, ScanRequest>();
  const devices = new Map<string, { account: string; kind: ScanKind; ids: Set<string> }>();
  for (const logged of events) {
    const { account, resource, id_developer } = logged;
    if (!followed.has(resource) && !collectionOfResource.has(resource)) continue;
    const rules = sets.get(account) ?? (await deps.loadRules(account));
    sets.set(account, rules);
    if (resource === device.name)
      for (const kind of kindsOf(logged, rules)) {
        const key = `${kind} ${account}`;
        const group = devices.get(key) ?? { account, kind, ids: new Set() };
        devices.set(key, group);
        group.ids.add(id_developer);
      }
    else for (const request of await requestsOf(deps, logged, rules)) requests.set(request._id, request);
  }
  const [first] = events;
  for (const [key, { ids, ...group }] of devices)
    for (const targets of splitIntoBatches([...ids], max_targets)) {
      const _id = `${key} ${first?._id} ${targets[0]}`;
      requests.set(_id, { _id, ...group, targets });
    }
  return [...requests.values()];
}

const isByFilter = ({ saved_filter }: Rule) => saved_filter !== undefined;

/** Finds out what the event of a device asks for. */
function kindsOf({ type, data }: StoredEvent, { rules }: RuleSet): ScanKind[] {
  if (rules.length === 0) return [];
  const isAbsenceWatched = rules.some(isWatchingAbsence);
  const isStatusWatched = rules.some(isWatchingStatus);
  if (type === 'device.created') return isAbsenceWatched || isStatusWatched ? ['created'] : [];
  if (type === 'device.deleted') return ['moved'];
  if (type === 'device.status_changed')
    return [...(isStatusWatched ? ['status' as const] : []), ...(rules.some(isByFilter) ? ['members' as const] : [])];
  return isAbsenceWatched || isMoveOrSwitch(data) ? ['moved', 'updated'] : ['moved'];
}

async function requestsOf(
  { store }: Deps,
  { type, account, resource, id_developer, data }: StoredEvent,
  { rules }: RuleSet,
): Promise<ScanRequest[]> {
  const request = (kind: ScanKind, target?: string | Id): ScanRequest => ({
    _id: `${kind} ${target ?? account}`,
    account,
    kind,
    targets: target === undefined ? [] : [target],
  });
  if (resource === alarmrule.name) return [request('rule', id_developer)];
  if (resource === savedFilter.name)
    return rules
      .filter(({ saved_filter }) => saved_filter === id_developer)
      .map((rule) => request('rule', rule.id_developer));
  if (resource === model.name) return rules.some(isByFilter) ? [request('members')] : [];
  const plural = collectionOfResource.get(resource);
  if (rules.length === 0 || plural === undefined || !type.endsWith('.updated') || !isMoveOrSwitch(data)) return [];
  const node = await store.loader(plural).locate({ account, limit: undefined }, id_developer);
  return node === undefined ? [] : [request('below', node._id)];
}

/** Reports whether an update of an object may have changed which devices are below it, or take streams. */
function isMoveOrSwitch(data: object | undefined): boolean {
  const { changed = [] } = (data ?? {}) as { changed?: readonly string[] };
  return changed.some((field) => field === 'enabled' || field.startsWith('id_'));
}
