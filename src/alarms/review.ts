import { keyOfId } from '../db/ids.js';
import { runInParallel } from '../lib/parallel.js';
import { getOrStart } from '../lib/promises.js';
import { findMatchingDevices } from '../objects/select/saved-filters.js';
import { isSameChain } from '../objects/tree/ancestors.js';
import { findDevices, type WatchedDevice } from './devices.js';
import { type Cause, type EvaluationDeps, refreshRecord } from './evaluate.js';
import { type AlarmRecord, buildWatchKey, isOpen } from './records.js';
import type { Place, Rule, RuleSet } from './rule-sets.js';

interface Candidate extends Place {
  account: string;
  id_developer: string;
}

/** Reports whether a rule covers one of the devices. */
export type IsMember = (rule: Rule, device: Candidate) => Promise<boolean>;

/** Creates the check for one piece of work: each saved filter is applied to all of its devices once. */
export function createMemberLookup({ store, clock }: EvaluationDeps, devices: Iterable<Candidate>): IsMember {
  const candidates = [...devices];
  const members = new Map<string, Promise<ReadonlySet<string>>>();

  async function findMembers(account: string, filter: string): Promise<ReadonlySet<string>> {
    const ids = candidates.filter((each) => each.account === account).map(({ id_developer }) => id_developer);
    const scope = { store, account, now: Math.floor(clock() / 1000), limit: undefined };
    return findMatchingDevices(scope, filter, ids);
  }

  return async (rule, device) => {
    const { account, saved_filter } = rule;
    if (!rule.covers(device)) return false;
    if (saved_filter === undefined) return true;
    const key = JSON.stringify([account, saved_filter]);
    const selected = await getOrStart(members, key, () => findMembers(account, saved_filter));
    return selected.has(device.id_developer);
  };
}

/** Dependencies of the watch and of scans. */
export interface ReviewDeps extends EvaluationDeps {
  /** Loads the enabled rules of an account, without a cache. */
  loadRules(account: string): Promise<RuleSet>;
}

/** Records, or rules at devices, that are looked at together in about 100 ms: their reads and writes share commands. */
export const batch_size = 250;

/** Ends records of an account whose rule or device is gone, disabled or elsewhere, and works on the others. */
export async function updateRecords(
  deps: ReviewDeps,
  records: readonly AlarmRecord[],
  rules: RuleSet,
  work: (record: AlarmRecord, rule: Rule, device: WatchedDevice) => Promise<unknown>,
): Promise<void> {
  if (records.length === 0) return;
  const ids = records.map(({ parent }) => parent);
  const devices = await findDevices(deps.store.db, ids);
  const isMember = createMemberLookup(deps, devices.values());
  await runInParallel(records, batch_size, async (record) => {
    const rule = rules.byKey.get(keyOfId(record.rule_id));
    const device = devices.get(keyOfId(record.parent));
    if (rule === undefined || device?.isEnabled !== true || !(await isMember(rule, device)))
      await deps.records.end(record, deps.clock() / 1000);
    else await work(record, rule, device);
  });
}

/** Takes over the present place of a device that was moved, as lists of open alarms show it. */
export async function updatePlace(
  { nameAncestors, records }: ReviewDeps,
  record: AlarmRecord,
  device: WatchedDevice,
): Promise<void> {
  const isSame = isSameChain(record.ancestors, device.ancestors);
  if (isSame || (record.state !== undefined && !isOpen(record))) return;
  const { id_asset, ...places } = await nameAncestors(device.ancestors);
  const set = { ancestors: device.ancestors, ...places, ...(id_asset !== undefined && { id_asset }) };
  await records.update(record, { set, ...(id_asset === undefined && { unset: ['id_asset' as const] }) });
}

/** Evaluates records of an account whose time has come (epoch seconds). */
export async function refreshDueRecords(deps: ReviewDeps, due: readonly AlarmRecord[], now: number): Promise<void> {
  const rules = await deps.loadRules(due[0]?.tenant ?? '');
  await updateRecords(deps, due, rules, (record, rule, device) =>
    // streams and changes of the status decide what begins, as long as none has come since a device was enabled
    refreshRecord(deps, rule, device, { floor: now, ending: ['value', 'status'] }, record),
  );
}

/** Evaluates rules at devices; those that are disabled are left out. */
export async function refreshDevices(
  deps: ReviewDeps,
  devices: readonly WatchedDevice[],
  { rulesOf, causeOf }: { rulesOf(device: WatchedDevice): readonly Rule[]; causeOf(device: WatchedDevice): Cause },
): Promise<void> {
  const enabled = devices.filter(({ isEnabled }) => isEnabled);
  const isMember = createMemberLookup(deps, enabled);
  const work = enabled.flatMap((device) => rulesOf(device).map((rule) => ({ device, rule })));
  await runInParallel(work, batch_size, async ({ device, rule }) => {
    if (!(await isMember(rule, device))) return;
    await refreshRecord(
      deps,
      rule,
      device,
      causeOf(device),
      await deps.records.find(buildWatchKey(rule._id, device._id)),
    );
  });
}
