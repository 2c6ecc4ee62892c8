import type { mongo } from 'mongoose';
import type { Database } from '../db/database.js';
import { buildConfigEntries } from './config-entries.js';
import { parseState, type StoredState, statesOf } from './store.js';

const batch_size = 200;

/** Lists the configuration files of states that were stored before they were listed. */
export async function upgradeConfigEntries(db: Database): Promise<void> {
  const states = statesOf(db);
  let updates: mongo.AnyBulkWriteOperation<StoredState>[] = [];
  const flush = async () => {
    if (updates.length > 0) await states.bulkWrite(updates, { ordered: false });
    updates = [];
  };
  for await (const state of states.find({ configs: { $exists: false } }, { batchSize: batch_size })) {
    const configs = buildConfigEntries(parseState(state));
    if (configs.length === 0) continue;
    const { _id, revision } = state;
    // who has written it since has listed them
    updates.push({ updateOne: { filter: { _id, revision }, update: { $set: { configs } } } });
    if (updates.length === batch_size) await flush();
  }
  await flush();
}
