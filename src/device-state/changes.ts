import { AppError } from '../errors.js';
import type { NamedEvent, TimedAuthor } from '../objects/write/last-change.js';
import { parseDataPath, readPath } from '../schema/data-path.js';
import { isPlainObject } from '../schema/fields/object.js';
import type { Values } from '../schema/fields.js';
import { configsMember, configVersionOf, isJsonEqual, memberOf, mergePatch } from './delta.js';
import { checkSide } from './rules.js';

/** Outcome of the desired version of a configuration file at the device. */
export type ConfigOutcome = 'applied' | 'refused';

export interface DeviceState {
  desired: Values;
  reported: Values;
  desired_version: number;
  reported_version: number;
  /** Epoch seconds. */
  desired_at?: number | undefined;
  reported_at?: number | undefined;
  /** Outcomes of the desired configuration files that were reported since they are desired. */
  outcomes: ReadonlyMap<string, ConfigOutcome>;
}

export interface ConfigVersion {
  name: string;
  version: string;
}

/** A changed state, and what follows from the change. */
export interface ChangedState {
  state: DeviceState;
  events: readonly NamedEvent[];
  /** Files that the device has begun to use. */
  deployed: readonly ConfigVersion[];
}

/** The state of a device of which nothing is stored. */
export const emptyState: DeviceState = {
  desired: {},
  reported: {},
  desired_version: 0,
  reported_version: 0,
  outcomes: new Map(),
};

/**
 * Merges a patch into `desired`. @param acceptedVersions versions that may be changed; undefined: any
 * @throws AppError invalid (4003), conflict (4005)
 */
export function mergeDesired(
  state: DeviceState,
  patch: Values,
  { user, request_id, now }: TimedAuthor,
  acceptedVersions: readonly number[] | undefined,
): ChangedState {
  const desired = mergePatch(state.desired, patch);
  checkSide('desired', desired);
  assertVersion(state, acceptedVersions);
  const next = withDesired(state, desired, now);
  const keys = new Set([...Object.keys(state.desired), ...Object.keys(desired)]);
  const changed = [...keys].filter((key) => !isJsonEqual(memberOf(state.desired, key), memberOf(desired, key)));
  const data = { version: next.desired_version, changed };
  return { state: next, events: [{ type: 'state.desired', user, request_id, data }], deployed: [] };
}

function assertVersion({ desired_version: stored }: DeviceState, sent: readonly number[] | undefined): void {
  if (sent === undefined || sent.includes(stored)) return;
  throw new AppError('conflict', { version: stored }, { logged: { sent, stored } });
}

/** The state with another desired side; rejections of what has changed go. */
function withDesired(state: DeviceState, desired: Values, now: number): DeviceState {
  return {
    ...state,
    desired,
    reported: withoutOutdatedRejections(state, desired),
    desired_version: state.desired_version + 1,
    desired_at: now,
  };
}

function withoutOutdatedRejections({ desired: before, reported }: DeviceState, desired: Values): Values {
  const { rejected } = reported;
  if (!isPlainObject(rejected)) return reported;
  const isOutdated = (path: string) => {
    const parsed = parseDataPath(path);
    return parsed !== undefined && !isJsonEqual(readPath(before, parsed), readPath(desired, parsed));
  };
  const outdated = Object.keys(rejected).filter(isOutdated);
  const removal = Object.assign(
    Object.create(null) as Values,
    Object.fromEntries(outdated.map((path) => [path, null])),
  );
  return outdated.length === 0 ? reported : mergePatch(reported, { rejected: removal });
}

/** The error of an earlier version of a file ends with the report of a version without one. */
function withoutFormerErrors(patch: Values): Values {
  const configs = memberOf(patch, configsMember);
  if (!isPlainObject(configs)) return patch;
  const entries = Object.entries(configs).map(([name, entry]) => [
    name,
    memberOf(entry, 'version') === undefined ? entry : { error: null, ...(entry as Values) },
  ]);
  return { ...patch, [configsMember]: Object.fromEntries(entries) };
}

/** Merges a patch into `reported`. @throws AppError invalid (4003) */
export function mergeReported(state: DeviceState, patch: Values, author: TimedAuthor): ChangedState {
  const reported = mergePatch(state.reported, withoutFormerErrors(patch));
  checkSide('reported', reported);
  const outcomes = new Map(state.outcomes);
  const events: NamedEvent[] = [];
  const deployed: ConfigVersion[] = [];
  for (const [name, version] of findDesiredConfigs(state.desired)) {
    if (!isPlainObject(memberOf(memberOf(patch, configsMember), name))) continue;
    const configs = memberOf(reported, configsMember);
    if (configVersionOf(configs, name) !== version) continue;
    const outcome = memberOf(memberOf(configs, name), 'error') === undefined ? 'applied' : 'refused';
    if (outcomes.get(name) === outcome) continue;
    outcomes.set(name, outcome);
    const { user, request_id } = author;
    events.push({ type: `config.${outcome}`, user, request_id, data: { name, version } });
    if (outcome === 'applied') deployed.push({ name, version });
  }
  const reported_version = state.reported_version + 1;
  const next = { ...state, reported, reported_version, reported_at: author.now, outcomes };
  return { state: next, events, deployed };
}

/** The desired versions of configuration files, by name. */
export function findDesiredConfigs(desired: Values): ReadonlyMap<string, string> {
  const configs = memberOf(desired, configsMember);
  if (!isPlainObject(configs)) return new Map();
  return new Map(Object.entries(configs).map(([name, entry]) => [name, String(memberOf(entry, 'version'))]));
}

/** A configuration file as a device needs it to fetch it. */
export interface DesiredConfig {
  version: string;
  size: number;
  checksum: string;
}

/** Makes a version of a file the desired one, or none. @throws AppError invalid (4003) */
export function selectConfig(
  state: DeviceState,
  name: string,
  config: DesiredConfig | undefined,
  { user, request_id, now }: TimedAuthor,
): ChangedState {
  const entry = Object.assign(Object.create(null) as Values, { [name]: config === undefined ? null : { ...config } });
  const desired = mergePatch(state.desired, { [configsMember]: entry });
  if (Object.keys(desired[configsMember] as Values).length === 0) delete desired[configsMember];
  checkSide('desired', desired);
  const outcomes = new Map(state.outcomes);
  const version = config?.version ?? null;
  if (findDesiredConfigs(state.desired).get(name) !== config?.version) outcomes.delete(name);
  const events = [{ type: 'config.desired', user, request_id, data: { name, version } }];
  return { state: { ...withDesired(state, desired, now), outcomes }, events, deployed: [] };
}
