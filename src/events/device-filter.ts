import mongoose, { type mongo } from 'mongoose';
import { parseClusterTime } from '../db/change-stream.js';
import { isSnapshotLost } from '../db/driver-errors.js';
import type { Store } from '../objects/context.js';
import { findMatchingDevices } from '../objects/select/saved-filters.js';
import type { Ancestors } from '../objects/tree/ancestors.js';
import { type AncestorField, ancestorFields, type StoredEvent } from '../resources/event.js';
import { device } from '../resources/index.js';

const { Timestamp } = mongoose.mongo;

/** Reports whether a saved filter selects the device of an event (reference/filters.md#events). */
export type IsSelectedByFilter = (
  filter: string,
  event: Pick<StoredEvent, '_id' | 'account' | 'type' | 'at' | 'id_developer' | AncestorField>,
) => Promise<boolean>;

/** Events of devices that a filter passes. */
const ofDevices = /^(?:device|deviceconfig|state|command|config|streams|alarm)\./;
const removed = `${device.name}.${device.events?.delete}`;

/**
 * Creates the check of events by saved filters. The id of an event holds the time of its change in the database, at which
 * the device is read: just after the change, or before its deletion.
 */
export function createEventFilter(store: Store): IsSelectedByFilter {
  return async (filter, { _id, account, type, at, id_developer, ...names }) => {
    if (!ofDevices.test(type)) return false;
    const ancestors = Object.fromEntries(ancestorFields.map((field) => [field, names[field]])) as Ancestors;
    const scope = { store, account, now: at, limit: undefined };
    const isAmong = async (atClusterTime?: mongo.Timestamp) =>
      (await findMatchingDevices(scope, filter, [id_developer], { atClusterTime, ancestors })).has(id_developer);
    const changed_at = parseClusterTime(_id);
    return isAmong(type === removed ? precedingTime(changed_at) : changed_at).catch((error: unknown) => {
      if (!isSnapshotLost(error)) throw error;
      // a deleted device cannot be read any more: rather one event too many than one too few
      return type === removed ? true : isAmong();
    });
  };
}

function precedingTime(time: mongo.Timestamp): mongo.Timestamp {
  const [t, i] = [time.getHighBitsUnsigned(), time.getLowBitsUnsigned()];
  return i > 0 ? new Timestamp({ t, i: i - 1 }) : new Timestamp({ t: t - 1, i: 0xffffffff });
}
