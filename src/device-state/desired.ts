import { createLookup } from '../db/batching/lookup.js';
import type { Database } from '../db/database.js';
import { findAll, findMany } from '../db/raw-find.js';
import { type DesiredMessage, formatDesired, type StoredState, statesOf } from './store.js';

interface DeviceKey {
  account: string;
  /** The `id_developer`. */
  device: string;
}

export type DesiredStates = ReturnType<typeof createDesiredStates>;

/** Calls that share a command; connections of an account ask for the same. */
const max_lists = 1000;
/** States have at most 64 KiB. */
const max_states = 16;
/** States that a wildcard subscription gets at once. */
const max_desired = 1000;

/** Creates the reader of what connections deliver: those of all share commands, in the share of their account. */
export function createDesiredStates(db: Database) {
  const isDesired = { desired_version: { $gt: 0 } };

  async function listOf(account: string): Promise<readonly string[]> {
    const options = { projection: { device: 1 }, sort: { account: 1, device: 1 }, limit: max_desired } as const;
    const states = await findMany(statesOf(db), { account, ...isDesired }, options);
    return states.map(({ device }) => device);
  }

  /** Finds the devices of an account that have a desired state, in order. */
  const list = createLookup<string, readonly string[]>({
    async fetch(accounts) {
      const lists = new Map<string, readonly string[]>();
      for (const account of accounts) lists.set(account, await listOf(account));
      return lists;
    },
    keyOf: (account) => account,
    maxBatchSize: max_lists,
    accountOf: (account) => account,
  });
  const keyOf = ({ account, device }: DeviceKey | StoredState) => `${account} ${device}`;
  const find = createLookup<DeviceKey, DesiredMessage>({
    async fetch(keys) {
      const accounts = [...new Set(keys.map(({ account }) => account))];
      const filter = { account: { $in: accounts }, device: { $in: keys.map(({ device }) => device) }, ...isDesired };
      const states = await findAll(statesOf(db), { filter });
      return new Map(states.map((state) => [keyOf(state), formatDesired(state)]));
    },
    keyOf,
    maxBatchSize: max_states,
    accountOf: ({ account }) => account,
  });
  return { list, find };
}
