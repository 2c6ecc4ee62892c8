import { getOrStart } from '../lib/promises.js';
import { findMatchingDevices } from '../objects/saved-filters.js';
import type { EvaluationDeps } from './evaluate.js';
import type { Place, Rule } from './rule-sets.js';

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
