import type { mongo } from 'mongoose';
import type { DatabaseAccess } from '../db/database.js';
import { readInBatches } from '../lib/batches.js';
import { buildConfigEntries } from './config-entries.js';
import { parseState, type StoredState, statesOf } from './store.js';

const batch_size = 200;

/** Lists the configuration files of states that were stored before they were listed. */
export async function upgradeConfigEntries(db: DatabaseAccess): Promise<void> {
  const states = statesOf(db);
  const unlisted = states.find({ configs: { $exists: false } }, { batchSize: batch_size });
  for await (const batch of readInBatches(unlisted, batch_size)) {
    const updates = batch.flatMap((state): mongo.AnyBulkWriteOperation<StoredState>[] => {
      const configs = buildConfigEntries(parseState(state));
      if (configs.length === 0) return [];
      const { _id, revision } = state;
      // who has written it since has listed them
      return [{ updateOne: { filter: { _id, revision }, update: { $set: { configs } } } }];
    });
    if (updates.length > 0) await states.bulkWrite(updates, { ordered: false });
  }
}
