import type { Database } from '../db/database.js';
import type { Keyring } from '../repositories/api-keys.js';
import { findEnabled } from '../repositories/hierarchy.js';
import { findDeviceLogin, findDevicesOf, findIngestKeys } from '../repositories/mqtt-credentials.js';
import { permits } from '../schema/operation.js';
import type { AreAncestorsEnabled } from '../telemetry/enabled-cache.js';
import type { Refusal } from './connect-packet.js';
import type { Verify } from './passwords.js';
import { devicePermissions, keyPermissions, type Permissions } from './permissions.js';
import type { Session } from './session.js';

export interface LoginDeps {
  db: Database;
  keyring: Keyring;
  verify: Verify;
  enabledAbove: AreAncestorsEnabled;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** The account and permissions of a successful login. */
export interface LoggedIn {
  account: string;
  owner: string;
  permissions: Permissions;
}

/** Prefixes of the ids in `owner`. */
const device_prefix = 'device ';
const key_prefix = 'key ';

/**
 * Authenticates a device by its credentials, or an API key given as the username with an empty password
 * (reference/mqtt.md#login).
 * @returns the login, or the reason of the refusal. @throws what the database throws
 */
export async function logIn(
  { db, keyring, verify, enabledAbove, clock }: LoginDeps,
  username: string | undefined,
  password: string,
): Promise<Refusal | LoggedIn> {
  if (username === undefined || username === '') return 'credentials';
  if (password === '') {
    const principal = await keyring.find(username, clock() / 1000);
    if (principal === undefined) return 'credentials';
    if (!permits(principal.scope, 'stream')) return 'unauthorized';
    return { account: principal.account, owner: key_prefix + principal.key_id, permissions: keyPermissions(username) };
  }
  const device = await findDeviceLogin(db, username);
  if (!(await verify(password, device?.hash)) || device === undefined) return 'credentials';
  const { account, field, id } = device.parent;
  if (!device.enabled || !(await enabledAbove(account, field, id))) return 'unauthorized';
  return { account, owner: device_prefix + device.credentials, permissions: devicePermissions(device) };
}

const batch_size = 1000;

/** The current permissions of owners. */
interface Reauthorization {
  /** Owners that are missing here may do nothing now. */
  permissions: ReadonlyMap<string, Permissions | 'as before'>;
  /** Owners whose credentials or keys no longer exist. */
  gone: ReadonlySet<string>;
}

/** Reads the permissions of many owners with a few queries. `now` in epoch seconds. */
export async function reauthorize(db: Database, owners: readonly string[], now: number): Promise<Reauthorization> {
  const permissions = new Map<string, Permissions | 'as before'>();
  const gone = new Set(owners);
  for (let at = 0; at < owners.length; at += batch_size) {
    const batch = owners.slice(at, at + batch_size);
    const idsOf = (prefix: string) =>
      batch.filter((owner) => owner.startsWith(prefix)).map((owner) => owner.slice(prefix.length));
    const [devices, keys] = await Promise.all([
      findDevicesOf(db, idsOf(device_prefix)),
      findIngestKeys(db, idsOf(key_prefix), now),
    ]);
    const isEnabled = await findEnabled(
      db,
      devices.map(({ parent }) => parent),
    );
    for (const id of keys) {
      gone.delete(key_prefix + id);
      permissions.set(key_prefix + id, 'as before');
    }
    for (const device of devices) {
      gone.delete(device_prefix + device.credentials);
      if (device.enabled && isEnabled(device.parent))
        permissions.set(device_prefix + device.credentials, devicePermissions(device));
    }
  }
  return { permissions, gone };
}

/** Applies the current permissions to a session; without any, or with a new password, it is closed. */
export function applyAuthorization(
  session: Session,
  permissions: Permissions | 'as before' | undefined,
  checked: number,
): void {
  if (session.revoked || session.checked > checked) return;
  if (permissions === undefined || isPasswordChanged(session.permissions, permissions)) {
    session.revoked = true;
    session.stream.destroy();
    return;
  }
  if (permissions !== 'as before') session.permissions = permissions;
  session.checked = checked;
}

function isPasswordChanged(before: Permissions, now: Permissions | 'as before'): boolean {
  return now !== 'as before' && before.kind === 'device' && now.kind === 'device' && before.hash !== now.hash;
}
