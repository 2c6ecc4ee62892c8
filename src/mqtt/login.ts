import type { Database } from '../db/database.js';
import type { Keyring } from '../repositories/api-keys.js';
import { findEnabled } from '../repositories/hierarchy.js';
import { findDeviceLogin, findDevicesOf, findIngestKeys } from '../repositories/mqtt-credentials.js';
import { permits } from '../schema/operation.js';
import type { AreAncestorsEnabled } from '../telemetry/enabled-cache.js';
import type { Session } from './account-broker.js';
import type { Refusal } from './packet-limits.js';
import type { Verify } from './passwords.js';
import { devicePermissions, keyPermissions, type Permissions } from './permissions.js';

interface LoginDeps {
  db: Database;
  keyring: Keyring;
  verify: Verify;
  enabledAbove: AreAncestorsEnabled;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** Who logged in. */
export interface LoggedIn {
  account: string;
  owner: string;
  permissions: Permissions;
}

const ofDevice = 'device ';
const ofKey = 'key ';

/**
 * Lets in a device with its credentials, or a key as username without a password (contract 9).
 * @returns why not, or who it is; throws what the database throws
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
    return { account: principal.account, owner: ofKey + principal.key_id, permissions: keyPermissions(username) };
  }
  const device = await findDeviceLogin(db, username);
  if (!(await verify(password, device?.hash)) || device === undefined) return 'credentials';
  const { account, field, id } = device.parent;
  if (!device.enabled || !(await enabledAbove(account, field, id))) return 'unauthorized';
  return { account, owner: ofDevice + device.credentials, permissions: devicePermissions(device) };
}

const batch = 1000;

/** What the database says about those who logged in. */
interface Standing {
  /** Absent: it may do nothing now. */
  permissions: ReadonlyMap<string, Permissions | 'as before'>;
  /** Those whose credentials or keys are no more. */
  gone: ReadonlySet<string>;
}

/** Looks many of them up again, in a few queries. `now` in epoch seconds. */
export async function reauthorize(db: Database, owners: readonly string[], now: number): Promise<Standing> {
  const permissions = new Map<string, Permissions | 'as before'>();
  const gone = new Set(owners);
  for (let at = 0; at < owners.length; at += batch) {
    const some = owners.slice(at, at + batch);
    const idsOf = (prefix: string) =>
      some.filter((owner) => owner.startsWith(prefix)).map((owner) => owner.slice(prefix.length));
    const [devices, keys] = await Promise.all([
      findDevicesOf(db, idsOf(ofDevice)),
      findIngestKeys(db, idsOf(ofKey), now),
    ]);
    const isEnabled = await findEnabled(
      db,
      devices.map(({ parent }) => parent),
    );
    for (const id of keys) {
      gone.delete(ofKey + id);
      permissions.set(ofKey + id, 'as before');
    }
    for (const device of devices) {
      gone.delete(ofDevice + device.credentials);
      if (device.enabled && isEnabled(device.parent))
        permissions.set(ofDevice + device.credentials, devicePermissions(device));
    }
  }
  return { permissions: permissions, gone };
}

/** Gives a session the permissions it has now, or takes all. `checked` in milliseconds of the process. */
export function applyAuthorization(
  session: Session,
  permissions: Permissions | 'as before' | undefined,
  checked: number,
): void {
  if (session.revoked || session.checked > checked) return;
  const changed =
    permissions === undefined ||
    (permissions !== 'as before' && session.permissions.kind === 'device' && permissions.kind === 'device'
      ? permissions.hash !== session.permissions.hash
      : false);
  if (changed) {
    session.revoked = true;
    session.stream.destroy();
    return;
  }
  if (permissions !== 'as before') session.permissions = permissions;
  session.checked = checked;
}
