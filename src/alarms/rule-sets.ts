import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Database, StoredObject } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findMany } from '../db/raw-find.js';
import { getOrStart } from '../lib/promises.js';
import type { Operator, StoredCondition } from '../resources/alarm-condition.js';
import type { Severity } from '../resources/alarm-states.js';
import { alarmrule } from '../resources/index.js';
import { type DataPath, parseDataPath } from '../schema/data-path.js';

/** A condition on the last value of a path. */
export interface ValueCondition {
  kind: 'value';
  path: DataPath;
  /** Has `clear`: holds longer where it was met before. */
  isLasting: boolean;
  /** @param isMet the condition was met before, so that it ends at `clear` only */
  holds(value: unknown, isMet: boolean): boolean;
}

/** A condition that is ready to be evaluated (reference/alarms.md#conditions). */
export type Condition =
  | ValueCondition
  | { kind: 'status'; statuses: ReadonlySet<string> }
  | { kind: 'absent'; path: DataPath; seconds: number };

type Compare = (value: number, limit: number) => boolean;

const comparisons: ReadonlyMap<Operator, Compare> = new Map<Operator, Compare>([
  ['>', (value, limit) => value > limit],
  ['>=', (value, limit) => value >= limit],
  ['<', (value, limit) => value < limit],
  ['<=', (value, limit) => value <= limit],
]);

/** Prepares a stored condition. */
function prepareCondition({ path, op, value, clear, status, absent, minutes = 0 }: StoredCondition): Condition {
  if (status !== undefined) return { kind: 'status', statuses: new Set(status) };
  if (absent !== undefined) return { kind: 'absent', path: toDataPath(absent), seconds: minutes * 60 };
  const dataPath = toDataPath(path ?? '');
  const compare = op && comparisons.get(op);
  if (compare === undefined || typeof value !== 'number') {
    const isWanted = op === '=';
    return { kind: 'value', path: dataPath, isLasting: false, holds: (last) => (last === value) === isWanted };
  }
  // a condition that is met ends when the value has reached `clear`, itself included
  const isPast: Compare = op === '>' || op === '>=' ? (last, limit) => last > limit : (last, limit) => last < limit;
  return {
    kind: 'value',
    path: dataPath,
    isLasting: clear !== undefined,
    holds(last, isMet) {
      if (typeof last !== 'number') return false;
      return isMet && clear !== undefined ? isPast(last, clear) : compare(last, value);
    },
  };
}

/** The path of a stored condition, which was checked before. */
function toDataPath(text: string): DataPath {
  return parseDataPath(text) ?? { text, steps: [{ key: text }] };
}

/** The fields that decide whether a rule covers a device. */
export interface Place {
  _id: Id;
  id_model?: string | undefined;
  ancestors: readonly Id[];
}

/** A rule that is ready to be evaluated. */
export interface Rule {
  _id: Id;
  /** `_id` as a short text. */
  key: string;
  account: string;
  id_developer: string;
  severity: Severity;
  match: 'all' | 'any';
  /** Seconds for which it has to hold. */
  for_s: number;
  conditions: readonly Condition[];
  /** A digest of the conditions: while it is the same, what was met before counts. */
  conditions_key: string;
  /** Narrows a query of devices to those that it may cover. */
  filter: object;
  /** Covers only devices that this saved filter selects, as `createMemberLookup` finds out. */
  saved_filter: string | undefined;
  /** The device is at a place that it covers. */
  covers(device: Place): boolean;
}

export interface Coverage {
  rules: readonly Rule[];
  /** Their conditions on values: each path once. */
  values: readonly { path: DataPath; conditions: readonly ValueCondition[] }[];
  /** Paths of which the absence counts for devices that a saved filter selects: only streams show that one joins them. */
  joining: readonly DataPath[];
}

export interface RuleSet {
  rules: readonly Rule[];
  byKey: ReadonlyMap<string, Rule>;
  covering(device: Place): Coverage;
}

export type RuleSets = ReturnType<typeof createRuleSets>;

interface StoredRule extends StoredObject {
  version: number;
  severity: Severity;
  match: 'all' | 'any';
  for: number;
  conditions: readonly StoredCondition[];
  id_model?: string;
  filter?: string;
  /** Internal id of the object of the hierarchy that it names. */
  parent?: Id;
}

/** Rules of other processes take effect after this time. */
export const cache_ms = 1000;
const max_cached_accounts = 10_000;
/** Different combinations of objects with rules, above devices of an account. */
const max_cached_combinations = 1000;
const ownerFields = alarmrule.owners;

/** Creates a cache of rules, which are compiled once after each change. */
export function createRuleSets(db: Database) {
  const cache = new LRUCache<string, { set: RuleSet; until: number; signature: string }>({ max: max_cached_accounts });
  const loading = new Map<string, Promise<RuleSet>>();
  let changes = 0;

  async function read(account: string): Promise<RuleSet> {
    const started = changes;
    const hint = { account: 1, enabled: 1, name: 1 };
    const rules = db.collection<StoredRule>(alarmrule.plural);
    const stored = await findMany(rules, { account, enabled: true }, { hint });
    const signature = stored.map(({ _id, version }) => `${String(_id)} ${version}`).join();
    const cached = cache.get(account);
    const set = cached?.signature === signature ? cached.set : prepareRules(stored);
    // what has changed since must not enter the cache
    if (started === changes) cache.set(account, { set, signature, until: performance.now() + cache_ms });
    return set;
  }

  return {
    load: read,
    /** Returns the rules as they were at most `cache_ms` ago. */
    of(account: string): RuleSet | Promise<RuleSet> {
      const cached = cache.get(account);
      if (cached !== undefined && cached.until > performance.now()) return cached.set;
      return getOrStart(loading, account, () => read(account).finally(() => loading.delete(account)));
    },
    /** Forgets the rules of an account, which this process has changed. */
    forget(account: string): void {
      changes++;
      cache.delete(account);
      loading.delete(account);
    },
  };
}

function prepareRules(stored: readonly StoredRule[]): RuleSet {
  const rules = stored.map(prepareRule);
  const general: Rule[] = [];
  const byTarget = new Map<string, Rule[]>();
  for (const [index, rule] of rules.entries()) {
    const target = targetOf(stored[index]);
    if (target === undefined) general.push(rule);
    else byTarget.set(target, [...(byTarget.get(target) ?? []), rule]);
  }
  const coverages = new LRUCache<string, Coverage>({ max: max_cached_combinations });
  return {
    rules,
    byKey: new Map(rules.map((rule) => [rule.key, rule])),
    covering({ _id, id_model, ancestors }) {
      const targets = [_id, ...ancestors].map(keyOfId);
      if (id_model !== undefined) targets.push(modelTarget(id_model));
      const matching = targets.filter((target) => byTarget.has(target));
      const key = JSON.stringify(matching);
      const cached = coverages.get(key);
      if (cached !== undefined) return cached;
      const coverage = prepareCoverage([...general, ...matching.flatMap((target) => byTarget.get(target) ?? [])]);
      coverages.set(key, coverage);
      return coverage;
    },
  };
}

function prepareCoverage(rules: readonly Rule[]): Coverage {
  const byPath = new Map<string, { path: DataPath; conditions: ValueCondition[] }>();
  for (const condition of rules.flatMap(({ conditions }) => conditions)) {
    if (condition.kind !== 'value') continue;
    const { text } = condition.path;
    const value = byPath.get(text) ?? { path: condition.path, conditions: [] };
    byPath.set(text, value);
    value.conditions.push(condition);
  }
  const joining = rules
    .filter(({ saved_filter }) => saved_filter !== undefined)
    .flatMap(({ conditions }) => conditions.flatMap((each) => (each.kind === 'absent' ? [each.path] : [])));
  return { rules, values: [...byPath.values()], joining };
}

const modelTarget = (id: string) => `model ${id}`;

/** The object whose devices a rule covers; undefined: all. */
function targetOf(rule: StoredRule | undefined): string | undefined {
  if (rule?.id_model !== undefined) return modelTarget(rule.id_model);
  const isOwned = ownerFields.some((field) => rule?.[field] !== undefined);
  return isOwned && rule?.parent !== undefined ? keyOfId(rule.parent) : undefined;
}

/** The devices that a rule may cover, as a filter. */
function filterOf(rule: StoredRule): object {
  const { id_model, id_device, parent } = rule;
  if (id_model !== undefined) return { id_model };
  if (targetOf(rule) === undefined) return {};
  return id_device === undefined ? { ancestors: parent } : { _id: parent };
}

function prepareRule(stored: StoredRule): Rule {
  const { _id, account, id_developer, severity, match, for: for_s, conditions } = stored;
  const target = targetOf(stored);
  return {
    ...{ _id, key: keyOfId(_id), account, id_developer, severity, match, for_s },
    conditions: conditions.map(prepareCondition),
    conditions_key: createHash('sha256').update(JSON.stringify(conditions)).digest('base64url'),
    filter: filterOf(stored),
    saved_filter: stored.filter,
    covers({ _id: device, id_model, ancestors }) {
      if (target === undefined) return true;
      if (id_model !== undefined && modelTarget(id_model) === target) return true;
      return [device, ...ancestors].some((id) => keyOfId(id) === target);
    },
  };
}
