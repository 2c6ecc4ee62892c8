import type { mongo } from 'mongoose';
import { hasCode } from './driver-errors.js';

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
