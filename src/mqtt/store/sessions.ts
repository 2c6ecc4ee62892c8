import type { Database } from '../../db/database.js';
import { isDuplicate } from '../../db/driver-errors.js';
import { findMany, findOne, hasMatch } from '../../db/raw-find.js';
import { withPrefix } from './keys.js';

/** Options of a subscription; those that only MQTT 5 has are absent unless set. */
export interface SubscriptionOptions {
  qos: 0 | 1 | 2;
  /** Comes with every message. */
  id?: number;
  /** The client does not get what it publishes itself. */
  no_local?: true;
  /** Messages keep the flag of their publisher. */
  retain_as_published?: true;
}

/** A granted filter. */
export interface StoredSubscription extends SubscriptionOptions {
  topic: string;
}

/** A connection: its instance, and its own id. */
export interface ConnectionRef {
  instance: string;
  connection: string;
}

/** The session of a client id (reference/mqtt.md#sessions). */
export interface StoredSession {
  /** The account and the client id. */
  _id: string;
  account: string;
  client_id: string;
  /** The device or the API key that the client id belongs to; credentials in a session of an earlier version. */
  owner: string;
  /** Names the session: its queue refers to it. */
  session: string;
  /** Outlasts its connection (clean session off). */
  persistent: boolean;
  /** The instance that has the connection. */
  instance: string | null;
  /** Names the latest connection. */
  connection: string;
  /** A connection of another instance that has yet to end. */
  previous?: ConnectionRef;
  /** Grows with every change, also when a session is deleted and created again. */
  version: number;
  subscriptions: readonly StoredSubscription[];
  /** The latest connection ended with its instance: which messages were sent on it is unknown. */
  cut?: boolean;
  /** When the connection ended; the session is deleted some time after. */
  seen_at?: Date;
  /** Lifetime without a connection, if it is shorter than `session_ttl_s`. */
  expiry_s?: number;
  /** A will of an earlier connection may wait for the end of the session. */
  has_delayed_will?: true;
  /** Without a connection: the end of that lifetime. */
  expires_at?: Date;
}

/** Sessions without a connection are deleted after this time (reference/mqtt.md#sessions). */
export const session_ttl_s = 30 * 86_400;
/** A broker of the account ends expired sessions before: this is for accounts without clients. */
export const expired_session_ttl_s = 86_400;

const sessionsIn = (db: Database) => db.collection<StoredSession>('mqtt_sessions');

/** Finds all sessions of an account. */
export function findSessions(db: Database, account: string): Promise<StoredSession[]> {
  const query = { _id: withPrefix(account) };
  return findMany(sessionsIn(db), query, { sort: { seen_at: 1 } });
}

/** A persistent session without a connection. */
export type OfflineSession = Pick<StoredSession, '_id' | 'owner' | 'session' | 'version'>;

/** Yields the persistent sessions of all accounts that have no connection. */
export function findOfflineSessions(db: Database): AsyncIterable<OfflineSession> {
  return sessionsIn(db).find({ instance: null }, { projection: { owner: 1, session: 1, version: 1 } });
}

/** @returns undefined if there is none */
export function findSession(db: Database, _id: string): Promise<StoredSession | undefined> {
  return findOne(sessionsIn(db), { _id });
}

/**
 * Saves a session. @param version of the stored one, undefined if there is none
 * @returns false if another instance has changed it
 */
export async function saveSession(db: Database, session: StoredSession, version?: number): Promise<boolean> {
  const { _id, ...fields } = session;
  try {
    if (version === undefined) await sessionsIn(db).insertOne(session);
    else if ((await sessionsIn(db).replaceOne({ _id, version }, fields)).matchedCount === 0) return false;
    return true;
  } catch (error) {
    if (isDuplicate(error)) return false;
    throw error;
  }
}

/** @returns false if another instance has changed it */
export async function deleteSession(
  db: Database,
  { _id, version }: Pick<StoredSession, '_id' | 'version'>,
): Promise<boolean> {
  return (await sessionsIn(db).deleteOne({ _id, version })).deletedCount === 1;
}

/**
 * Ends the connections of an instance: its persistent sessions wait for their clients, the others are deleted.
 * @param isCut the instance was killed
 */
export async function releaseSessions(db: Database, instance: string, isCut: boolean): Promise<void> {
  await sessionsIn(db).deleteMany({ instance, persistent: false });
  const version = { $max: [{ $add: ['$version', 1] }, { $toDouble: { $toLong: '$$NOW' } }] };
  const expires_at = { $add: ['$$NOW', { $multiply: ['$expiry_s', 1000] }] };
  const released = {
    instance: null,
    seen_at: '$$NOW',
    version,
    ...(isCut && { cut: true }),
    expires_at: { $cond: [{ $gte: ['$expiry_s', 0] }, expires_at, '$$REMOVE'] },
  };
  await sessionsIn(db).updateMany({ instance }, [{ $set: released }]);
}

/** Reports that a connection, which another instance has replaced, has ended. */
export async function removePrevious(db: Database, _id: string, connection: string): Promise<void> {
  await sessionsIn(db).updateOne({ _id, 'previous.connection': connection }, { $unset: { previous: '' } });
}

/** Reports whether the connection that a session has replaced on another instance has ended. */
export async function isPreviousEnded(db: Database, _id: string, connection: string): Promise<boolean> {
  const query = { _id, 'previous.connection': connection };
  return !(await hasMatch(sessionsIn(db), query));
}
