import type { Database } from '../../db/database.js';
import { type AreAncestorsEnabled, findEnabled } from '../../objects/ancestors.js';
import { findValidKeys, type Keyring, type ValidKey } from '../../objects/api-keys.js';
import { isScopeSufficient } from '../../schema/operation.js';
import type { Refusal } from '../protocol/connect-packet.js';
import { parseStreamTopic } from '../protocol/topics.js';
import type { Session } from '../sessions/session.js';
import {
  findDeviceLogin,
  findDevicesOf,
  findDevicesOfKeys,
  findDevicesWithLogin,
  type KnownLogin,
  type LoginDevice,
  type RecheckedDevice,
} from '../store/credentials.js';
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
/** Returns the owner of client ids: the device, whatever it logs in with, or a key (reference/mqtt.md#sessions). */
export function ownerOfClientIds({ owner, permissions }: Pick<LoggedIn, 'owner' | 'permissions'>): string {
  return permissions.kind === 'device' ? `clients of ${permissions.parent} ${permissions.device}` : owner;
}

function parseDeviceOwner(owner: string): LoginDevice | undefined {
  const [, parent, device] = /^clients of (\S+) (.*)$/s.exec(owner) ?? [];
  return parent === undefined || device === undefined ? undefined : { parent, device };
}

/**
 * Finds the owners of client ids that cannot log in any more: devices without credentials and key, and deleted keys;
 * also deleted credentials, the owners in earlier versions. `now` in epoch seconds.
 */
export async function findGoneOwners(
  db: Database,
  owners: readonly string[],
  now: number,
): Promise<ReadonlySet<string>> {
  const devices = owners.flatMap((owner) => parseDeviceOwner(owner) ?? []);
  const [{ gone }, present] = await Promise.all([
    reauthorize(db, owners, now, () => Number.POSITIVE_INFINITY),
    findDevicesWithLogin(db, devices, now),
  ]);
  return new Set([...gone].filter((owner) => !present.has(parseDeviceOwner(owner)?.parent ?? '')));
}

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
    const key = await findKeyLogin({ db, keyring, areAncestorsEnabled, clock }, username);
    return typeof key === 'string' ? key : { ...key, topics_read_at };
  }
  const device = await findDeviceLogin(db, username);
  signal.throwIfAborted();
  if (!(await verify({ username, password, storedHash: device?.hash })) || device === undefined) return 'credentials';
  const { account, ancestors } = device;
  if (!device.enabled || !(await areAncestorsEnabled(account, ancestors))) return 'unauthorized';
  const permissions = createDevicePermissions(device);
  return { account, owner: device_prefix + device.credentials, permissions, topics_read_at };
}

/**
 * Finds what a client may do that names itself by an API key: what the device may that the key is limited to, or send
 * streams (reference/mqtt.md#api-key-login). @returns the reason of the refusal otherwise
 */
export async function findKeyLogin(
  { db, keyring, areAncestorsEnabled, clock }: Omit<LoginDeps, 'verify'>,
  text: string,
): Promise<Refusal | Omit<LoggedIn, 'topics_read_at'>> {
  const principal = await keyring.find(text, clock() / 1000);
  if (principal === undefined) return 'credentials';
  const { account, scope, limit, key_id = '' } = principal;
  if (!isScopeSufficient(scope, 'stream')) return 'unauthorized';
  const owner = key_prefix + key_id;
  if (limit?.field !== 'id_device') return { account, owner, permissions: createKeyPermissions(text, limit) };
  const [device] = await findDevicesOfKeys(db, [{ id: key_id, account, limit }], () => false);
  if (device === undefined) return 'credentials';
  if (!device.enabled || !(await areAncestorsEnabled(account, device.ancestors))) return 'unauthorized';
  return { account, owner, permissions: createDevicePermissions({ ...device, topics: device.topics ?? [] }) };
}

/** The current state of an owner: a device with its topics, or an API key, of which nothing changes. */
type Authorization = RecheckedDevice | Pick<ValidKey, 'limit'>;

const isKey = (authorization: Authorization): authorization is Pick<ValidKey, 'limit'> => 'limit' in authorization;

interface Reauthorization {
  /** Owners that are missing here may do nothing now. */
  authorizations: ReadonlyMap<string, Authorization>;
  /** Owners whose credentials or keys no longer exist. */
  gone: ReadonlySet<string>;
}

/** Returns the login of a device as it was when the session read it; undefined for an API key. */
export function knownLoginOf({ owner, permissions }: Session): KnownLogin | undefined {
  if (permissions.kind !== 'device' || !owner.startsWith(device_prefix)) return undefined;
  return { credentials: owner.slice(device_prefix.length), parent: permissions.parent, hash: permissions.hash };
}

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
  const hasTopics = (prefix: string) => (login: string, topics_change_until: number) =>
    topicsReadAt(prefix + login) > topics_change_until;
  const keys = await findValidKeys(db, idsOf(key_prefix), 'stream', now);
  const found = await Promise.all([
    findDevicesOf(db, idsOf(device_prefix), hasTopics(device_prefix)),
    findDevicesOfKeys(db, [...keys.values()], hasTopics(key_prefix)),
  ]);
  const devices = found.flat();
  const enabled = await findEnabled(
    db,
    devices.map(({ ancestors }) => ancestors),
  );
  const authorizations = new Map<string, Authorization>();
  const gone = new Set(owners);
  for (const [id, { limit }] of keys) {
    if (limit?.field === 'id_device') continue;
    gone.delete(key_prefix + id);
    authorizations.set(key_prefix + id, { limit });
  }
  for (const [index, device] of devices.entries()) {
    const owner = (keys.has(device.credentials) ? key_prefix : device_prefix) + device.credentials;
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
  if (!isKey(authorization)) {
    session.permissions = refreshPermissions(session.permissions, authorization);
    if (authorization.topics !== undefined) session.topics_read_at = now;
  }
  session.checked = checked;
}

function isPasswordChanged(permissions: TopicPermissions, authorization: Authorization): boolean {
  return permissions.kind === 'device' && !isKey(authorization) && permissions.hash !== authorization.hash;
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
  if (isKey(authorization)) return parseStreamTopic(topic, true) && createKeyPermissions('', authorization.limit);
  const permissions = createDevicePermissions({ ...authorization, topics: authorization.topics ?? [] });
  return canPublish(permissions, topic) ? permissions : undefined;
}
