import type { mongo } from 'mongoose';
import { read_limit_ms } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { runInParallel } from '../lib/parallel.js';
import { getOrStart } from '../lib/promises.js';
import { isSameChain, keyOfId } from '../objects/ancestors.js';
import { findDevices, type WatchedDevice } from './devices.js';
import { type Cause, type EvaluationDeps, settle } from './evaluate.js';
import { createMemberLookup } from './members.js';
import { type AlarmRecord, buildWatchKey, isOpen, recordsOf } from './records.js';
import type { Rule, RuleSet } from './rule-sets.js';

/** Loads the enabled rules of an account, without a cache. */
export type LoadRules = (account: string) => Promise<RuleSet>;

/** Dependencies of reviews and scans. */
export interface ReviewDeps extends EvaluationDeps {
  loadRules: LoadRules;
}

/** Records or devices that are looked at together: their reads and writes share commands. */
export const batch_size = 500;

/** Keeps the rules of accounts for one piece of work. */
export function createRuleLookup(loadRules: LoadRules): LoadRules {
  const sets = new Map<string, Promise<RuleSet>>();
  return (account) => getOrStart(sets, account, loadRules);
}

/**
 * Ends the matching current records whose rule is gone, disabled, or does not cover their device any more, and those of
 * disabled and deleted devices.
 */
export async function checkRecords(deps: ReviewDeps, filter: mongo.Filter<AlarmRecord>): Promise<void> {
  const { db } = deps.store;
  const findRules = createRuleLookup(deps.loadRules);
  let last: Id | undefined;
  for (;;) {
    const after = last === undefined ? {} : { _id: { $gt: last } };
    const query = { ...filter, ...after, is_current: true as const };
    const options = { sort: { _id: 1 }, limit: batch_size, maxTimeMS: read_limit_ms } as const;
    const records = await recordsOf(db).find(query, options).toArray();
    await reviewRecords(deps, records, findRules, (record, _rule, device) => followMove(deps, record, device));
    if (records.length < batch_size) return;
    last = records.at(-1)?._id;
  }
}

/** Ends the records whose rule is gone or no longer covers their device, and works on the others. */
async function reviewRecords(
  deps: ReviewDeps,
  records: readonly AlarmRecord[],
  findRules: LoadRules,
  work: (record: AlarmRecord, rule: Rule, device: WatchedDevice) => Promise<unknown>,
): Promise<void> {
  if (records.length === 0) return;
  const { db } = deps.store;
  const devices = await findDevices(
    db,
    records.map(({ parent }) => parent),
  );
  const isMember = createMemberLookup(deps, devices.values());
  const review = async (record: AlarmRecord) => {
    const rule = (await findRules(record.tenant)).byKey.get(keyOfId(record.rule_id));
    const device = devices.get(keyOfId(record.parent));
    if (rule === undefined || device?.isEnabled !== true || !(await isMember(rule, device)))
      await deps.records.end(record, deps.clock() / 1000);
    else await work(record, rule, device);
  };
  await runInParallel(records, batch_size, review);
}

/** Takes over the present place of a device that was moved, as lists of open alarms show it. */
async function followMove({ nameAncestors, records }: ReviewDeps, record: AlarmRecord, device: WatchedDevice) {
  const isSame = isSameChain(record.ancestors, device.ancestors);
  if (isSame || (record.state !== undefined && !isOpen(record))) return;
  const { id_asset, ...places } = await nameAncestors(device.ancestors);
  const set = { ancestors: device.ancestors, ...places, ...(id_asset !== undefined && { id_asset }) };
  await records.update(record, { set, ...(id_asset === undefined && { unset: ['id_asset' as const] }) });
}

/** Evaluates the records whose time has come. @returns whether there may be more. @param now epoch seconds */
export async function settleDueRecords(deps: ReviewDeps, now: number): Promise<boolean> {
  const { db } = deps.store;
  const options = { sort: { due_at: 1 }, limit: batch_size, maxTimeMS: read_limit_ms } as const;
  const records = await recordsOf(db)
    .find({ due_at: { $lte: now } }, options)
    .toArray();
  if (records.length === 0) return false;
  await reviewRecords(deps, records, createRuleLookup(deps.loadRules), (record, rule, device) =>
    // streams and changes of the status decide what begins, as long as none has come since a device was enabled
    settle(deps, rule, device, { floor: now, ending: ['value', 'status'] }, record),
  );
  return records.length === batch_size;
}

/** Evaluates rules at devices; those that are disabled are left out. */
export async function settleDevices(
  deps: ReviewDeps,
  devices: readonly WatchedDevice[],
  { rulesOf, causeOf }: DeviceSelection,
): Promise<void> {
  const enabled = devices.filter(({ isEnabled }) => isEnabled);
  const isMember = createMemberLookup(deps, enabled);
  const work = enabled.flatMap((device) => rulesOf(device).map((rule) => ({ device, rule })));
  await runInParallel(work, batch_size, async ({ device, rule }) => {
    if (!(await isMember(rule, device))) return;
    await settle(deps, rule, device, causeOf(device), await deps.records.find(buildWatchKey(rule._id, device._id)));
  });
}

/** The rules that are evaluated at a device, and why. */
export interface DeviceSelection {
  rulesOf(device: WatchedDevice): readonly Rule[];
  causeOf(device: WatchedDevice): Cause;
}
