import { createLookup, type LookUp } from '../db/batching/lookup.js';
import type { Database } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import type { RawQuery } from '../db/raw-find.js';
import { groupBy } from '../lib/group-by.js';
import { getId } from '../serialize/bson.js';
import { type CommandRef, readOpenCommands, toDelivered, toRef } from './store.js';

interface AccountKey {
  account: string;
  _id: Id;
}

/** Reads of what connections deliver. Those of all connections share commands, in the share of their account. */
export interface OpenCommands {
  /** Finds the open commands of a device that have not expired, oldest first; undefined if there is none. */
  findRefs: LookUp<AccountKey, readonly CommandRef[]>;
  /** Loads an open command as its device gets it; undefined if it has ended since. */
  loadJson: LookUp<AccountKey, string>;
}

/** Look-ups of one command: many connections may wait for the same device. */
const max_devices = 1000;
/** Commands have at most 32 KiB. */
const max_commands = 32;

/** Creates the reader of a process. @param clock epoch milliseconds */
export function createOpenCommands(db: Database, clock: () => number): OpenCommands {
  const accountOf = ({ account }: AccountKey) => account;
  const keyOf = ({ _id }: AccountKey) => keyOfId(_id);
  const idsOf = (keys: readonly AccountKey[]) => ({ $in: keys.map(({ _id }) => _id) });
  const read = (query: RawQuery) => readOpenCommands(db, clock() / 1000, query);

  const findRefs = createLookup<AccountKey, readonly CommandRef[]>({
    async fetch(devices) {
      const found: { device: string; ref: CommandRef }[] = [];
      for await (const batch of read({ filter: { parent: idsOf(devices) }, projection: { parent: 1, id: 1, name: 1 } }))
        found.push(...batch.map((bson) => ({ device: keyOfId(getId(bson, 'parent')), ref: toRef(bson) })));
      found.sort((first, other) => (first.ref.id < other.ref.id ? -1 : 1));
      const byDevice = groupBy(found, ({ device }) => device);
      return new Map([...byDevice].map(([device, open]) => [device, open.map(({ ref }) => ref)]));
    },
    keyOf,
    maxBatchSize: max_devices,
    accountOf,
  });
  const loadJson = createLookup<AccountKey, string>({
    async fetch(commands) {
      const loaded = new Map<string, string>();
      for await (const batch of read({ filter: { _id: idsOf(commands) } })) {
        for (const { ref, json } of batch.map(toDelivered)) loaded.set(keyOfId(ref._id), json);
      }
      return loaded;
    },
    keyOf,
    maxBatchSize: max_commands,
    accountOf,
  });
  return { findRefs, loadJson };
}
