import { createLookup, type LookUp } from '../db/batching/lookup.js';
import { type Database, read_limit_ms } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findRaw } from '../db/raw-find.js';
import { command } from '../resources/index.js';
import { getId } from '../serialize/bson.js';
import { type CommandRef, isOpen, toDelivered, toRef } from './store.js';

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
  const isDeliverable = () => ({ ...isOpen, expires_at: { $gt: Math.floor(clock() / 1000) } });
  const idsOf = (keys: readonly AccountKey[]) => ({ $in: keys.map(({ _id }) => _id) });
  // without a snapshot a scan that pauses can see a later command, and miss an earlier one in a slot that it has passed
  const find = (filter: object, projection?: object) =>
    findRaw(db.collection(command.plural), {
      filter: { ...filter, ...isDeliverable() },
      ...(projection !== undefined && { projection }),
      readConcern: { level: 'snapshot' },
      maxTimeMS: read_limit_ms,
    }).batches;

  const findRefs = createLookup<AccountKey, readonly CommandRef[]>({
    async fetch(devices) {
      const refs = new Map<string, CommandRef[]>();
      for await (const batch of find({ parent: idsOf(devices) }, { parent: 1, id: 1, name: 1 })) {
        for (const bson of batch) {
          const device = keyOfId(getId(bson, 'parent'));
          refs.set(device, [...(refs.get(device) ?? []), toRef(bson)]);
        }
      }
      for (const [device, open] of refs)
        refs.set(
          device,
          open.toSorted((first, other) => (first.id < other.id ? -1 : 1)),
        );
      return refs;
    },
    keyOf,
    maxBatchSize: max_devices,
    accountOf,
  });
  const loadJson = createLookup<AccountKey, string>({
    async fetch(commands) {
      const loaded = new Map<string, string>();
      for await (const batch of find({ _id: idsOf(commands) })) {
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
