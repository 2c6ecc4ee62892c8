import type { Database } from '../db/database.js';
import type { Keyring } from '../repositories/api-keys.js';
import { enabledPlaces, findDevicesOf, findLogin, sendingKeys } from '../repositories/mqtt-credentials.js';
import { permits } from '../schema/operation.js';
import type { EnabledAbove } from '../telemetry/enabled-cache.js';
import type { Session } from './account-broker.js';
import type { Refusal } from './packet-limits.js';
import type { Verify } from './passwords.js';
import { type Rights, rightsOfDevice, rightsOfKey } from './permissions.js';

interface Doorman {
  db: Database;
  keyring: Keyring;
  verify: Verify;
  enabledAbove: EnabledAbove;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** Who logged in. */
export interface Login {
  account: string;
  owner: string;
  rights: Rights;
}

const ofDevice = 'device ';
const ofKey = 'key ';

/**
 * Lets in a device with its credentials, or a key as username without a password (contract 9).
 * @returns why not, or who it is; throws what the database throws
 */
export async function logIn(
  { db, keyring, verify, enabledAbove, clock }: Doorman,
  username: string | undefined,
  password: string,
): Promise<Refusal | Login> {
  if (username === undefined || username === '') return 'credentials';
  if (password === '') {
    const principal = await keyring.find(username, clock() / 1000);
    if (principal === undefined) return 'credentials';
    if (!permits(principal.scope, 'stream')) return 'unauthorized';
    return { account: principal.account, owner: ofKey + principal.key_id, rights: rightsOfKey(username) };
  }
  const device = await findLogin(db, username);
  if (!(await verify(password, device?.hash)) || device === undefined) return 'credentials';
  const { account, field, id } = device.above;
  if (!device.enabled || !(await enabledAbove(account, field, id))) return 'unauthorized';
  return { account, owner: ofDevice + device.credentials, rights: rightsOfDevice(device) };
}

const batch = 1000;

/** What the database says about those who logged in. */
interface Standing {
  /** Absent: it may do nothing now. */
  rights: ReadonlyMap<string, Rights | 'as before'>;
  /** Those whose credentials or keys are no more. */
  gone: ReadonlySet<string>;
}

/** Looks many of them up again, in a few queries. `now` in epoch seconds. */
export async function standingOf(db: Database, owners: readonly string[], now: number): Promise<Standing> {
  const rights = new Map<string, Rights | 'as before'>();
  const gone = new Set(owners);
  for (let at = 0; at < owners.length; at += batch) {
    const some = owners.slice(at, at + batch);
    const idsOf = (prefix: string) =>
      some.filter((owner) => owner.startsWith(prefix)).map((owner) => owner.slice(prefix.length));
    const [devices, keys] = await Promise.all([findDevicesOf(db, idsOf(ofDevice)), sendingKeys(db, idsOf(ofKey), now)]);
    const isEnabled = await enabledPlaces(
      db,
      devices.map(({ above }) => above),
    );
    for (const id of keys) {
      gone.delete(ofKey + id);
      rights.set(ofKey + id, 'as before');
    }
    for (const device of devices) {
      gone.delete(ofDevice + device.credentials);
      if (device.enabled && isEnabled(device.above)) rights.set(ofDevice + device.credentials, rightsOfDevice(device));
    }
  }
  return { rights, gone };
}

/** Gives a session the rights it has now, or takes all. `checked` in milliseconds of the process. */
export function apply(session: Session, rights: Rights | 'as before' | undefined, checked: number): void {
  if (session.revoked || session.checked > checked) return;
  const changed =
    rights === undefined ||
    (rights !== 'as before' && session.rights.kind === 'device' && rights.kind === 'device'
      ? rights.hash !== session.rights.hash
      : false);
  if (changed) {
    session.revoked = true;
    session.stream.destroy();
    return;
  }
  if (rights !== 'as before') session.rights = rights;
  session.checked = checked;
}

/** Callers that come while `work` is under way share the next run, so that all see what was so when they came. */
export function shared(work: () => Promise<void>): () => Promise<void> {
  let current: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  function run(): Promise<void> {
    current = work().finally(() => {
      current = undefined;
    });
    return current;
  }
  return () => {
    if (current === undefined) return run();
    next ??= current
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        return run();
      });
    return next;
  };
}
