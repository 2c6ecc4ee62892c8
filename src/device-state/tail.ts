import type { Change } from '../db/change-stream.js';
import type { Database, Log } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findAll } from '../db/raw-find.js';
import { type ChangeEntry, createChangeTail } from '../http/live/change-tail.js';
import type { Tail } from '../http/live/tail.js';
import { devicestate } from '../resources/index.js';
import { type DesiredMessage, formatDesired, type StoredState, statesOf } from './store.js';

/** A desired state that a device is to get. */
export type StateEntry = ChangeEntry<DesiredMessage>;

interface StateChange extends Change {
  documentKey: { _id: Id };
  fullDocument?: Pick<StoredState, 'desired_version' | 'desired'>;
  updateDescription?: { updatedFields: Partial<Pick<StoredState, 'desired_version' | 'desired'>> };
}

/** Creates the tail of changes of desired states; reports are left out. */
export function createStateTail(db: Database, log: Log): Tail<StateEntry> {
  const members = { desired_version: 1, desired: 1 };
  return createChangeTail<DesiredMessage>(db, log, {
    collection: devicestate.plural,
    pipeline: [
      {
        $match: {
          $or: [
            { operationType: 'insert', 'fullDocument.desired_version': { $gt: 0 } },
            { 'updateDescription.updatedFields.desired_version': { $exists: true } },
          ],
        },
      },
      {
        $project: { clusterTime: 1, documentKey: 1, fullDocument: members, 'updateDescription.updatedFields': members },
      },
    ],
    complete: (changes) => describeChanges(db, changes as readonly StateChange[]),
  });
}

/** Describes each desired state, with the difference to what is reported now. */
async function describeChanges(db: Database, changes: readonly StateChange[]) {
  const filter = { _id: { $in: changes.map(({ documentKey }) => documentKey._id) } };
  const states = await findAll(statesOf(db), { filter });
  const stored = new Map(states.map((state) => [keyOfId(state._id), state]));
  return changes.map(({ documentKey, fullDocument, updateDescription }) => {
    const state = stored.get(keyOfId(documentKey._id));
    if (state === undefined) return undefined;
    const { desired_version, desired = state.desired } = fullDocument ?? updateDescription?.updatedFields ?? {};
    const message = formatDesired({ ...state, desired_version: Number(desired_version), desired });
    return { account: state.account, ...message };
  });
}
