import { buildBounds, type ClusteredDocument } from '../../db/clustered.js';
import type { Database } from '../../db/database.js';
import { isDuplicate } from '../../db/driver-errors.js';
import type { OpaqueJson } from '../../db/opaque-json.js';
import { findMany, findOne, hasMatch } from '../../db/raw-find.js';

/** A client id at an external broker, reserved for its owner until `expires_at` unless it logs in again. */
interface ClientBinding {
  _id: string;
  owner: string;
  seen_at: Date;
  expires_at: Date;
}

const binding_ttl_ms = 30 * 86_400_000;
const refresh_after_ms = 86_400_000;
const max_bindings = 100;

const bindingsIn = (db: Database) => db.collection<ClientBinding>('mqttclients');

function bindingFor(owner: string, now: Date): Omit<ClientBinding, '_id'> {
  return { owner, seen_at: now, expires_at: new Date(now.getTime() + binding_ttl_ms) };
}

/**
 * Binds a client id to its owner, or extends the binding. An owner keeps the 100 ids it used last, so that clients with
 * random ids cannot fill the database. @returns false if another owner has the id
 */
export async function bindClient(db: Database, client_id: string, owner: string, now: Date): Promise<boolean> {
  const availableId = { _id: client_id, $or: [{ owner }, { expires_at: { $lte: now } }] };
  try {
    const { upsertedCount } = await bindingsIn(db).updateOne(
      availableId,
      { $set: bindingFor(owner, now) },
      { upsert: true },
    );
    if (upsertedCount === 1) await deleteOldest(db, owner);
    return true;
  } catch (error) {
    if (isDuplicate(error)) return false;
    throw error;
  }
}

async function deleteOldest(db: Database, owner: string): Promise<void> {
  const beyondLimit = {
    projection: { _id: 1 },
    sort: { seen_at: -1, _id: 1 },
    skip: max_bindings,
    limit: 1000,
  } as const;
  const old = await findMany(bindingsIn(db), { owner }, beyondLimit);
  if (old.length > 0) await bindingsIn(db).deleteMany({ _id: { $in: old.map(({ _id }) => _id) }, owner });
}

/** Reports whether a client id is bound to its owner, and extends a binding that has not been extended for a day. */
export async function isBoundClient(db: Database, client_id: string, owner: string, now: Date): Promise<boolean> {
  const query = { _id: client_id, owner, expires_at: { $gt: now } };
  const binding = await findOne(bindingsIn(db), query);
  if (binding === undefined) return false;
  if (now.getTime() - binding.seen_at.getTime() > refresh_after_ms)
    await bindingsIn(db).updateOne(query, { $set: bindingFor(owner, now) });
  return true;
}

interface StreamBatch {
  account: string;
  entries: readonly { device: string; _t: string; at: number | undefined; data: OpaqueJson }[];
}

/**
 * Looks for identical streams (device, kind, `at`, data). Without `at` a duplicate cannot be recognised and counts as
 * new.
 */
export async function hasStreams(db: Database, { account, entries }: StreamBatch): Promise<boolean> {
  for (const { device, _t, at, data } of entries) {
    if (at === undefined) return false;
    const query = { _id: buildBounds({ account, device, at }, 'n'), _t, data: { $eq: data } };
    if (!(await hasMatch(db.collection<ClusteredDocument>('streams'), query))) return false;
  }
  return true;
}
