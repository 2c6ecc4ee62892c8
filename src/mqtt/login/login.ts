import type { Database } from '../../db/database.js';
import { type AreAncestorsEnabled, findEnabled } from '../../objects/ancestors.js';
import { findValidKeys, type Keyring } from '../../objects/api-keys.js';
import { isScopeSufficient } from '../../schema/operation.js';
import type { Refusal } from '../protocol/connect-packet.js';
import { parseStreamTopic } from '../protocol/topics.js';
import type { Session } from '../sessions/session.js';
import { findDeviceLogin, findDevicesOf, type RecheckedDevice } from '../store/credentials.js';
import type { StoredWill } from '../store/wills.js';
import type { Verify } from './passwords.js';
import {
  canPublish,
  createDevicePermissions,
  createKeyPermissions,
  refreshPermissions,
  type TopicPermissions,
} from './permissions.js';

export interface LoginDeps {
  db: Database;
  keyring: Keyring;
  verify: Verify;
  areAncestorsEnabled: AreAncestorsEnabled;
  /** Epoch milliseconds. */
  clock: () => number;
}

export interface LoginRequest {
  username: string;
  password: string;
  /** Aborts when the client is gone. */
  signal: AbortSignal;
}

/** The account and permissions of a successful login. */
export interface LoggedIn {
  account: string;
  owner: string;
  permissions: TopicPermissions;
  /** When the topics were read, in epoch seconds. */
  topics_read_at: number;
}

/** Prefixes of the ids in `owner`. */
const device_prefix = 'device ';
const key_prefix = 'key ';

/**
 * Authenticates a device by its credentials, or an API key given as the username with an empty password
 * (reference/mqtt.md#login).
 * @returns the login, or the reason of the refusal. @throws what the database throws; the signal's reason if it aborts
 */
export async function logIn(
  { db, keyring, verify, areAncestorsEnabled, clock }: LoginDeps,
  { username, password, signal }: LoginRequest,
): Promise<Refusal | LoggedIn> {
  if (username === '') return 'credentials';
  const topics_read_at = clock() / 1000;
  if (password === '') {
    const principal = await keyring.find(username, clock() / 1000);
    if (principal === undefined) return 'credentials';
    if (!isScopeSufficient(principal.scope, 'stream') || principal.limit !== undefined) return 'unauthorized';
    const permissions = createKeyPermissions(username);
    return { account: principal.account, owner: key_prefix + principal.key_id, permissions, topics_read_at };
  }
  const device = await findDeviceLogin(db, username);
  signal.throwIfAborted();
  if (!(await verify({ username, password, storedHash: device?.hash })) || device === undefined) return 'credentials';
  const { account, ancestors } = device;
  if (!device.enabled || !(await areAncestorsEnabled(account, ancestors))) return 'unauthorized';
  const permissions = createDevicePermissions(device);
  return { account, owner: device_prefix + device.credentials, permissions, topics_read_at };
}

/** The current state of an owner: a device with its topics, or an API key, which has nothing that changes. */
type Authorization = RecheckedDevice | 'key';

interface Reauthorization {
  /** Owners that are missing here may do nothing now. */
  authorizations: ReadonlyMap<string, Authorization>;
  /** Owners whose credentials or keys no longer exist. */
  gone: ReadonlySet<string>;
}

/**
 * Topics are read again even if no change was announced, in case another version of the service changed them: after a
 * random time, so that the reads of many sessions spread.
 */
const min_topics_age_s = 30;
const max_topics_age_s = 60;

/**
 * Reads the state of at most 100 owners with a few queries. `now` in epoch seconds.
 * @param topicsReadAt when the topics of an owner were read, in epoch seconds
 */
export async function reauthorize(
  db: Database,
  owners: readonly string[],
  now: number,
  topicsReadAt: (owner: string) => number,
): Promise<Reauthorization> {
  const idsOf = (prefix: string) =>
    owners.filter((owner) => owner.startsWith(prefix)).map((owner) => owner.slice(prefix.length));
  const [devices, keys] = await Promise.all([
    findDevicesOf(db, idsOf(device_prefix), (credentials, topics_change_until) => {
      const read_at = topicsReadAt(device_prefix + credentials);
      const max_age_s = min_topics_age_s + Math.random() * (max_topics_age_s - min_topics_age_s);
      return read_at > topics_change_until && now - read_at < max_age_s;
    }),
    findValidKeys(db, idsOf(key_prefix), 'stream', now),
  ]);
  const enabled = await findEnabled(
    db,
    devices.map(({ ancestors }) => ancestors),
  );
  const authorizations = new Map<string, Authorization>();
  const gone = new Set(owners);
  for (const id of keys) {
    gone.delete(key_prefix + id);
    authorizations.set(key_prefix + id, 'key');
  }
  for (const [index, device] of devices.entries()) {
    const owner = device_prefix + device.credentials;
    gone.delete(owner);
    if (device.enabled && enabled[index] === true) authorizations.set(owner, device);
  }
  return { authorizations, gone };
}

/** Applies the current state of its owner to a session; without one, or with a new password, the session is closed. */
export function applyAuthorization(
  session: Session,
  authorization: Authorization | undefined,
  { checked, now }: { checked: number; now: number },
): void {
  if (session.revoked || session.checked > checked) return;
  if (authorization === undefined || isPasswordChanged(session.permissions, authorization)) {
    session.revoked = true;
    session.stream.destroy();
    return;
  }
  if (authorization !== 'key') {
    session.permissions = refreshPermissions(session.permissions, authorization);
    if (authorization.topics !== undefined) session.topics_read_at = now;
  }
  session.checked = checked;
}

function isPasswordChanged(permissions: TopicPermissions, authorization: Authorization): boolean {
  return permissions.kind === 'device' && authorization !== 'key' && permissions.hash !== authorization.hash;
}

/** Finds out what the owner of a will may do now. @returns undefined if the will may not be published */
export async function findWillPermissions(
  db: Database,
  will: StoredWill,
  now: number,
): Promise<TopicPermissions | undefined> {
  const { owner, topic } = will;
  const { authorizations } = await reauthorize(db, [owner], now, () => 0);
  const authorization = authorizations.get(owner);
  if (authorization === undefined) return undefined;
  if (authorization === 'key') return parseStreamTopic(topic) && createKeyPermissions('');
  const permissions = createDevicePermissions({ ...authorization, topics: authorization.topics ?? [] });
  return canPublish(permissions, topic) ? permissions : undefined;
}
