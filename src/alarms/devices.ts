import type { Database, StoredObject } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findMany } from '../db/raw-find.js';
import type { SendingDevice } from '../objects/receipts/received-streams.js';
import { findEnabled } from '../objects/tree/ancestors.js';
import { device } from '../resources/index.js';

/** A device as rules look at it without a stream. */
export interface WatchedDevice extends SendingDevice {
  /** It and everything above it is enabled. */
  isEnabled: boolean;
  created_at: number;
}

type StoredDevice = StoredObject & { id_model?: string; created_at: number; stream_revision?: Id };

export const deviceProjection = {
  ...{ account: 1, id_developer: 1, id_model: 1, ancestors: 1, enabled: 1, created_at: 1, stream_revision: 1 },
} as const;

/** Finds devices by their internal ids, without a cache; those that are gone are left out. */
export async function findDevices(db: Database, ids: readonly Id[]): Promise<ReadonlyMap<string, WatchedDevice>> {
  const collection = db.collection<StoredDevice>(device.plural);
  const stored = await findMany(collection, { _id: { $in: [...ids] } }, { projection: deviceProjection });
  return new Map((await toWatched(db, stored)).map((each) => [keyOfId(each._id), each]));
}

/** Finds out which stored devices have only enabled objects above them. */
export async function toWatched(db: Database, stored: readonly StoredObject[]): Promise<WatchedDevice[]> {
  const devices = stored as readonly StoredDevice[];
  const areEnabled = await findEnabled(db, devices);
  return devices.map(
    ({ _id, account, id_developer, id_model, ancestors = [], enabled, created_at, stream_revision }, index) => ({
      ...{ _id, account, id_developer, id_model, ancestors, created_at, stream_revision },
      isEnabled: enabled === true && areEnabled[index] === true,
    }),
  );
}
