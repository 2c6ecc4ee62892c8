import type { LookUp } from '../../db/batching/lookup.js';
import type { Database } from '../../db/database.js';
import type { KeyLimit } from '../../db/reach.js';
import { findValidKeys, hasExpired, type Keyring, type KeyUser } from '../../objects/api-keys.js';
import { type AreAncestorsEnabled, findEnabled } from '../../objects/tree/ancestors.js';
import { isScopeSufficient } from '../../schema/operation.js';
import { reasons } from '../connection/reasons.js';
import type { Refusal } from '../protocol/connect-packet.js';
import { parseStreamTopic } from '../protocol/topics.js';
import { describeDevice, describeUnknown, key_prefix, type LoginNames } from '../sessions/login-names.js';
import {
  canPublish,
  createDevicePermissions,
  createKeyPermissions,
  type LoggedIn,
  refreshPermissions,
  type TopicPermissions,
} from '../sessions/permissions.js';
import type { Session } from '../sessions/session.js';
import {
  findCertifiedDevices,
  findDevicesOf,
  findDevicesOfKeys,
  findDevicesWithLogin,
  type KnownLogin,
  type LoginDevice,
  type MqttDevice,
  recordCertificate,
} from '../store/credentials.js';
import type { StoredWill } from '../store/wills.js';
import { QueueFullError } from './login-queue.js';
import type { Verify } from './passwords.js';

export interface LoginDeps {
  db: Database;
  keyring: Keyring;
  findDeviceLogin: LookUp<string, MqttDevice>;
  verify: Verify;
  areAncestorsEnabled: AreAncestorsEnabled;
  /** Epoch milliseconds. */
  clock: () => number;
}

export interface LoginRequest {
  username: string;
  password: string;
  /** The device that the client's certificate names; undefined without one. */
  certified?: string | undefined;
  /** Aborts when the client is gone. */
  signal: AbortSignal;
}

/** A refused login, with the names that are known of its client. */
export interface RefusedLogin extends LoginNames {
  refusal: Refusal;
  /** The failure, where that is no fault of the client. */
  err?: unknown;
  detail?: string;
}

/** Describes a login that could not be checked. */
export function describeFailure(err: unknown): RefusedLogin {
  if (err instanceof QueueFullError) return { refusal: 'overloaded', detail: err.message };
  return { refusal: 'unavailable', err };
}

/** Prefix of the ids of credentials in `owner`. */
const device_prefix = 'device ';
/** Prefix of the internal ids of devices that have shown a certificate. */
const certificate_prefix = 'certificate ';
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
 * Authenticates a device by its certificate or credentials, or an API key given as the username with an empty password
 * (reference/mqtt.md#login).
 * @throws what the database throws; the signal's reason if it aborts
 */
export async function logIn(deps: LoginDeps, request: LoginRequest): Promise<RefusedLogin | LoggedIn> {
  const { username, password, certified } = request;
  if (certified !== undefined) return findCertificateLogin(deps, certified, username);
  if (username === '') return { refusal: 'no username' };
  if (password !== '') return findPasswordLogin(deps, request);
  const key = await findKeyLogin(deps, username);
  if (!('refusal' in key) || key.key_id !== undefined) return key;
  // a device without its password
  const device = await deps.findDeviceLogin(username);
  return device === undefined ? key : { refusal: 'password', ...describeDevice(username, device) };
}

async function findPasswordLogin(
  { keyring, findDeviceLogin, verify, areAncestorsEnabled, clock }: LoginDeps,
  { username, password, signal }: LoginRequest,
): Promise<RefusedLogin | LoggedIn> {
  const device = await findDeviceLogin(username);
  signal.throwIfAborted();
  // beside the check, so that it takes no longer for unknown usernames
  const [isVerified, unknown] = await Promise.all([
    verify({ username, password, storedHash: device?.hash }),
    device ?? keyring.identify(username, clock() / 1000),
  ]);
  if (device === undefined) {
    const names = unknown && 'key_id' in unknown ? nameKey(unknown) : describeUnknown(username, password);
    return { refusal: 'does not exist', ...names };
  }
  const names = describeDevice(username, device);
  if (!isVerified) return { refusal: 'password', ...names };
  return findGrant(device, device_prefix + device.credentials, names, areAncestorsEnabled);
}

/** Finds what the device of a certificate may do; a username, if there is one, must be that of the same device. */
async function findCertificateLogin(
  { db, findDeviceLogin, areAncestorsEnabled }: LoginDeps,
  id: string,
  username: string,
): Promise<RefusedLogin | LoggedIn> {
  const [device] = await findCertifiedDevices(db, { id_developer: id }, () => false);
  if (device === undefined) return { refusal: 'does not exist', device: id };
  const { account, credentials, parent } = device;
  const names = { account, device: id };
  if (username !== '' && username !== id && (await findDeviceLogin(username))?.parent !== parent)
    return { refusal: 'password', ...names };
  const login = await findGrant(device, certificate_prefix + credentials, names, areAncestorsEnabled);
  if (!('refusal' in login)) await recordCertificate(db, device);
  return login;
}

const nameKey = ({ account, key_id }: KeyUser) => ({ account, key_id });

/** Finds what a device may do by its topics, unless it or what is above it is disabled. */
export async function findGrant(
  device: MqttDevice,
  owner: string,
  names: LoginNames,
  areAncestorsEnabled: AreAncestorsEnabled,
): Promise<RefusedLogin | LoggedIn> {
  const { account, enabled, ancestors } = device;
  if (!enabled) return { refusal: 'disabled', ...names };
  if (!(await areAncestorsEnabled(account, ancestors))) return { refusal: 'disabled above', ...names };
  return { account, owner, permissions: createDevicePermissions(device) };
}

/**
 * Finds what a client may do that names itself by an API key: what the device may that the key is limited to, or send
 * streams (reference/mqtt.md#api-key-login).
 */
export async function findKeyLogin(
  { db, keyring, areAncestorsEnabled, clock }: Omit<LoginDeps, 'findDeviceLogin' | 'verify'>,
  text: string,
): Promise<RefusedLogin | LoggedIn> {
  const now = clock() / 1000;
  const principal = await keyring.identify(text, now);
  if (principal === undefined) return { refusal: 'does not exist' };
  const { account, scope, limit, key_id } = principal;
  const names = nameKey(principal);
  if (hasExpired(principal, now)) return { refusal: 'expired', ...names };
  if (!isScopeSufficient(scope, 'stream')) return { refusal: 'scope', ...names };
  const owner = key_prefix + key_id;
  if (limit?.field !== 'id_device') return { account, owner, permissions: createKeyPermissions(text, limit) };
  const [device] = await findDevicesOfKeys(db, [{ id: key_id, account, limit }], () => false);
  const ofDevice = { ...names, device: limit.id_developer };
  if (device === undefined) return { refusal: 'does not exist', ...ofDevice };
  return findGrant(device, owner, ofDevice, areAncestorsEnabled);
}

/** The current state of owners: those that are neither among devices nor keys may do nothing now. */
interface Reauthorization {
  /** Devices with their topics. */
  devices: ReadonlyMap<string, MqttDevice>;
  /** The limits of API keys, which never change. */
  keys: ReadonlyMap<string, KeyLimit | undefined>;
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
  const validKeys = await findValidKeys(db, idsOf(key_prefix), 'stream', now);
  const found = await Promise.all([
    findDevicesOf(db, idsOf(device_prefix), hasTopics(device_prefix)),
    findDevicesOfKeys(db, [...validKeys.values()], hasTopics(key_prefix)),
    findCertifiedDevices(db, idsOf(certificate_prefix), hasTopics(certificate_prefix)),
  ]);
  const prefixes = [device_prefix, key_prefix, certificate_prefix];
  const existing = found.flatMap((some, index) =>
    some.map((device) => ({ ...device, owner: prefixes[index] + device.credentials })),
  );
  const enabled = await findEnabled(db, existing);
  const ofNoDevice = [...validKeys].filter(([, { limit }]) => limit?.field !== 'id_device');
  const keys = new Map(ofNoDevice.map(([id, { limit }]) => [key_prefix + id, limit]));
  const usable = existing.filter((device, index) => device.enabled && enabled[index] === true);
  const devices = new Map(usable.map((device) => [device.owner, device]));
  const present = new Set([...keys.keys(), ...existing.map(({ owner }) => owner)]);
  return { devices, keys, gone: new Set(owners.filter((owner) => !present.has(owner))) };
}

/**
 * Applies the current state of its owner to a session; without one, or with a new password, the session is closed.
 * @returns the reason to close it
 */
export function applyAuthorization(
  session: Session,
  { devices, keys, gone }: Reauthorization,
  { checked, now }: { checked: number; now: number },
): Refusal | undefined {
  if (session.revoked || session.checked > checked) return undefined;
  const { owner, permissions } = session;
  const device = devices.get(owner);
  const isPasswordChanged = permissions.kind === 'device' && device !== undefined && permissions.hash !== device.hash;
  if (isPasswordChanged || (device === undefined && !keys.has(owner))) {
    session.revoked = true;
    session.end(reasons.not_authorized);
    if (isPasswordChanged) return 'password';
    return gone.has(owner) ? 'does not exist' : 'disabled';
  }
  if (device !== undefined) session.permissions = refreshPermissions(permissions, device);
  if (device?.topics !== undefined) session.topics_read_at = now;
  session.checked = checked;
  return undefined;
}

/** Finds out what the owner of a will may do now. @returns undefined if the will may not be published */
export async function findWillPermissions(
  db: Database,
  will: StoredWill,
  now: number,
): Promise<TopicPermissions | undefined> {
  const { owner, topic } = will;
  const { devices, keys } = await reauthorize(db, [owner], now, () => 0);
  if (keys.has(owner)) return parseStreamTopic(topic, true) && createKeyPermissions('', keys.get(owner));
  const device = devices.get(owner);
  const permissions = device && createDevicePermissions(device);
  return permissions && canPublish(permissions, topic) ? permissions : undefined;
}
