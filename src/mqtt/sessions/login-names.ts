import type { ConnectPacket } from '../connection/packets.js';
import { isKeyLevel, type LoggedIn, type TopicPermissions } from './permissions.js';

/** Names of a login and its connection for the log. A username that is an API key is never one of them. */
export interface LoginNames {
  account?: string;
  device?: string;
  username?: string;
  key_id?: string;
  client_id?: string | undefined;
  ip?: string;
}

/** Prefix of the ids of keys in the owner of a login. */
export const key_prefix = 'key ';
const max_length = 200;
/** The forms of generated keys, and of those that operators generate for BOOTSTRAP_API_KEY. */
const keyForm = /^[\w+/=-]{43,}$/;

/** Names the client of a login that was not checked, or has an unknown username: with an empty password that is a key. */
export function describeUnknown(username: string, password: string): LoginNames {
  return username === '' || password === '' || keyForm.test(username)
    ? {}
    : { username: username.slice(0, max_length) };
}

/** Names the client of a CONNECT packet, by what the login has found out. A client id may hold the key too. */
export function describeConnect(
  { username, password, client_id: sent }: Pick<ConnectPacket, 'username' | 'password' | 'client_id'>,
  found: LoginNames,
): LoginNames {
  const { username: verified, device, key_id } = found;
  const mayBeKey = key_id !== undefined || (device === undefined && password.length === 0);
  const isKey = mayBeKey && username !== '' && verified === undefined;
  const client_id = (isKey ? sent.replaceAll(username, '***') : sent).slice(0, max_length);
  const unknown = isKey ? {} : describeUnknown(username, password.toString());
  return { ...(client_id !== '' && { client_id }), ...unknown, ...found };
}

/** Names the device that a username belongs to. */
export function describeDevice(username: string, { account, device }: { account: string; device: string }) {
  return { username, account, device };
}

/** Names the owner of a login. */
export function describeOwner({ account, owner, permissions }: LoggedIn) {
  return {
    account,
    ...(permissions.kind === 'device' && { device: permissions.device }),
    ...(owner.startsWith(key_prefix) && { key_id: owner.slice(key_prefix.length) }),
  };
}

/** Returns the name that shares a line a minute with no other; client ids may be random, and addresses shared. */
export function formatName({ account, device, key_id, username, client_id, ip }: LoginNames): string {
  return `${account ?? ''} ${device ?? key_id ?? username ?? ip ?? client_id ?? ''}`;
}

/** Replaces what may be a key in a topic: the first level of the topics of a key and of `{key}/streams`, and what looks like one. */
export function redactTopic(topic: string, permissions?: TopicPermissions): string {
  const [first = '', ...levels] = topic.split('/');
  const isOfStreams = /^(?:streams|status)$/.test(levels.join('/'));
  const mayBeKey = !/@|%40/.test(first) && (permissions?.kind === 'key' || isOfStreams);
  const shown = mayBeKey || (permissions !== undefined && isKeyLevel(permissions, first)) ? '***' : first;
  const redacted = [shown, ...levels].map((level) => (keyForm.test(level) ? '***' : level));
  return redacted.join('/').slice(0, max_length);
}
