import type { mongo } from 'mongoose';
import { type Database, read_limit_ms } from '../db/database.js';
import { isDuplicate } from '../db/driver-errors.js';
import { toMap } from '../db/opaque-json.js';

/** Who uses a client id at an external broker, and until when it is theirs without another login. */
interface Binding {
  _id: string;
  owner: string;
  seen_at: Date;
  expires_at: Date;
}

const unused_ms = 30 * 86_400_000;
const refresh_ms = 86_400_000;
const max_bindings = 100;

const clients = (db: Database) => db.collection('mqttclients') as unknown as mongo.Collection<Binding>;

/** Indexes of the bindings: they go by themselves when they have expired. */
export async function prepareClients(db: Database): Promise<void> {
  await clients(db).createIndexes([
    { key: { expires_at: 1 }, expireAfterSeconds: 0 },
    { key: { owner: 1, seen_at: -1 } },
  ]);
}

function seen(owner: string, now: Date): Omit<Binding, '_id'> {
  return { owner, seen_at: now, expires_at: new Date(now.getTime() + unused_ms) };
}

/**
 * Binds a client id to its owner, or notes that it is in use still. Of an owner's ids the 100 seen last stay bound, so
 * that clients which make a new one each time fill no database. @returns whether it is the owner's now
 */
export async function bindClient(db: Database, client_id: string, owner: string, now: Date): Promise<boolean> {
  const free = { _id: client_id, $or: [{ owner }, { expires_at: { $lte: now } }] };
  try {
    const { upsertedCount } = await clients(db).updateOne(free, { $set: seen(owner, now) }, { upsert: true });
    if (upsertedCount === 1) await forgetOldest(db, owner);
    return true;
  } catch (error) {
    if (isDuplicate(error)) return false;
    throw error;
  }
}

async function forgetOldest(db: Database, owner: string): Promise<void> {
  const beyond = { projection: { _id: 1 }, sort: { seen_at: -1, _id: 1 }, skip: max_bindings, limit: 1000 } as const;
  const old = await clients(db).find({ owner }, beyond).toArray();
  if (old.length > 0) await clients(db).deleteMany({ _id: { $in: old.map(({ _id }) => _id) }, owner });
}

/** Whether a client id is bound to its owner; one in use for long stays bound. */
export async function isBoundClient(db: Database, client_id: string, owner: string, now: Date): Promise<boolean> {
  const query = { _id: client_id, owner, expires_at: { $gt: now } };
  const found = await clients(db).findOne(query, { maxTimeMS: read_limit_ms });
  if (found === null) return false;
  if (now.getTime() - found.seen_at.getTime() > refresh_ms)
    await clients(db).updateOne(query, { $set: seen(owner, now) });
  return true;
}

interface StreamBatch {
  account: string;
  entries: readonly { device: string; _t: string; at?: number; data: unknown }[];
}

/**
 * Whether all these streams are in the database, told by what they say themselves: `at`, kind and data. Those without an
 * `at` of their own cannot be told from an equal measurement, and count as new.
 */
export async function streamsExist(db: Database, { account, entries }: StreamBatch): Promise<boolean> {
  for (const { device, _t, at, data } of entries) {
    if (at === undefined) return false;
    const query = { account, device, at, _t, data: { $eq: toMap(data) } };
    const found = await db.collection('streams').findOne(query, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
    if (found === null) return false;
  }
  return true;
}
