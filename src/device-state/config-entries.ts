import { type ConfigEntry, type ConfigStatus, max_config_text } from '../resources/device/configs.js';
import { isPlainObject } from '../schema/fields/object.js';
import type { Values } from '../schema/fields.js';
import type { DeviceState } from './changes.js';
import { buildDelta, configsMember, configVersionOf, memberOf } from './delta.js';

/** Each has an entry in an index. */
const max_entries = 100;
/** In UTF-16 units, of which a character may have two. */
const max_length = 2 * max_config_text;

/** Lists the configuration files of a state, those that are desired first (reference/device-configs.md#fleet). */
export function buildConfigEntries({ desired, reported }: Pick<DeviceState, 'desired' | 'reported'>): ConfigEntry[] {
  const [wanted, actual] = [desired, reported].map((side) => memberOf(side, configsMember));
  const names = new Set([wanted, actual].flatMap((side) => (isPlainObject(side) ? Object.keys(side) : [])));
  if (names.size === 0) return [];
  const delta = memberOf(buildDelta(desired, reported), configsMember);
  const entries: ConfigEntry[] = [];
  for (const name of names) {
    if (entries.length === max_entries) break;
    const versions = { desired: versionOf(wanted, name), reported: versionOf(actual, name) };
    if (name.length > max_length || (versions.desired ?? versions.reported) === null) continue;
    const hasFailed = memberOf(memberOf(actual, name), 'error') !== undefined;
    entries.push({ name, ...versions, status: describe(versions, memberOf(delta, name) !== undefined, hasFailed) });
  }
  return entries;
}

function describe({ desired, reported }: Values, isMissing: boolean, hasFailed: boolean): ConfigStatus {
  if (desired === null) return 'not_desired';
  if (isMissing) return 'pending';
  // a rejected path leaves the delta, too
  return reported === desired && !hasFailed ? 'applied' : 'refused';
}

/** Reads the version of a file; a device may report any value. */
function versionOf(configs: unknown, name: string): string | null {
  const version = configVersionOf(configs, name);
  return typeof version === 'string' && version.length <= max_length ? version : null;
}
