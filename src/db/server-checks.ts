import mongoose, { type mongo } from 'mongoose';
import { StartError } from '../errors.js';
import { ignore } from '../lib/promises.js';
import type { Log } from './database.js';
import { hasCode } from './driver-errors.js';

/** The oldest version of MongoDB that has clustered collections and all stages that are used. */
const min_version = 6;

/** @throws StartError for a MongoDB that is too old, also by its feature version; Error for a standalone server */
export async function assertSupported(db: mongo.Db): Promise<void> {
  const { setName, msg } = await db.command({ hello: 1 });
  // retryable writes and the log of changes exist in replica sets and sharded clusters only
  if (setName === undefined && msg !== 'isdbgrid')
    throw new Error('MONGODB_URI is a standalone server; start mongod with --replSet and run rs.initiate()');
  const { version } = await db.command({ buildInfo: 1 });
  const feature_version = await readFeatureVersion(db);
  if (Number.parseInt(version, 10) < min_version || Number.parseInt(feature_version ?? version, 10) < min_version)
    throw new StartError(
      `the database is MongoDB ${version} with featureCompatibilityVersion ${feature_version ?? 'unknown'}; both must be ${min_version}.0 or later`,
    );
}

/** @returns undefined where the user may not read it, and of a sharded cluster */
async function readFeatureVersion(db: mongo.Db): Promise<string | undefined> {
  const parameter = { getParameter: 1, featureCompatibilityVersion: 1 };
  const isRefusal = (error: unknown) => error instanceof mongoose.mongo.MongoServerError;
  const answer = await db.client.db('admin').command(parameter).catch(ignore(isRefusal));
  return answer?.featureCompatibilityVersion?.version;
}

const max_offset_ms = 5000;
const wrong_offset_ms = 60_000;
const warning_period_ms = 3_600_000;

/** Creates the comparison of the clock of this machine with that of the database. @param clock epoch milliseconds */
export function createClockWatch(log: Log, clock = Date.now) {
  let offset_ms = 0;
  let warning: { isRight: boolean; at_ms: number } | undefined;
  const isRight = () => Math.abs(offset_ms) <= wrong_offset_ms;

  function warn(): void {
    const now_ms = performance.now();
    if (warning?.isRight === isRight() && now_ms - warning.at_ms < warning_period_ms) return;
    warning = { isRight: isRight(), at_ms: now_ms };
    const side = offset_ms > 0 ? 'ahead of' : 'behind';
    const effect = isRight() ? '' : ': status, alarms and expiry wait until it is right';
    log.warn({ offset_s: offset_ms / 1000 }, `the clock is ${side} the database's${effect}`);
  }

  return {
    /** Milliseconds by which this clock is ahead; 0 until it is measured. */
    offset: () => offset_ms,
    /** Deadlines pass only while this is true. */
    isRight,
    /** Measures the offset; warns of a wrong clock once an hour. */
    async measure(db: mongo.Db) {
      const sent_at = clock();
      const { localTime } = await db.command({ hello: 1 });
      // the database read its clock at some time in between
      offset_ms = Math.max(sent_at - localTime, 0) - Math.max(localTime - clock(), 0);
      if (Math.abs(offset_ms) > max_offset_ms) warn();
    },
  };
}

/** Names the connections of an installation: others on the same server have databases of other names. */
export function formatAppName({
  appName = 'device-platform',
  dbName = 'test',
}: mongo.MongoClientOptions & { dbName?: string }): string {
  return `${appName}/${dbName}`;
}

/** A transaction of this service sends its commands at once: after so long, its process has crashed or lost the database. */
const idle_us = 3_000_000;
/** Errors of an address that may not list sessions: Unauthorized, and AtlasError of shared clusters. */
const isRefused = hasCode(13, 8000);

/**
 * Ends transactions that crashed processes of this service have left open. MongoDB does so only after 60 s, and until then
 * other requests cannot change their documents. A process that was only slow begins its transaction again.
 * @returns their number; 0 if the user of the address may not list its sessions
 */
export async function endIdleTransactions(client: mongo.MongoClient): Promise<number> {
  const idle = {
    type: 'idleSession',
    appName: client.options.appName,
    'transaction.timeInactiveMicros': { $gte: idle_us },
  };
  const stages = [{ $currentOp: { idleSessions: true, idleConnections: false } }, { $match: idle }];
  try {
    const admin = client.db('admin', { readPreference: 'primary' });
    const idleSessions = await admin.aggregate([...stages, { $project: { lsid: 1 } }]).toArray();
    const sessions = idleSessions.map(({ lsid }) => ({ id: lsid.id }));
    if (sessions.length > 0) await admin.command({ killSessions: sessions });
    return sessions.length;
  } catch (error) {
    if (isRefused(error)) return 0;
    throw error;
  }
}
