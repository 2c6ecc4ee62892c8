import { splitIntoBatches } from '../lib/batches.js';
import { getOrStart } from '../lib/promises.js';
import { type AccountBroker, type BrokerDeps, openAccountBroker } from './account-broker.js';
import { findGoneOwners } from './login/login.js';

/** Owners of sessions per query. */
const batch_size = 100;

/** The brokers of all accounts, each opened at the first login of its account. */
export type AccountBrokers = ReturnType<typeof createAccountBrokers>;

/** Creates an empty collection of brokers that share `deps`. */
export function createAccountBrokers(deps: BrokerDeps) {
  const brokers = new Map<string, Promise<AccountBroker>>();
  const openBrokers = async () => {
    const settled = await Promise.allSettled(brokers.values());
    return settled.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  };
  return {
    /** @throws what the database throws */
    of: (account: string) => getOrStart(brokers, account, () => openAccountBroker(account, deps)),
    /** @returns undefined for an account without a login so far */
    find: (account: string) => brokers.get(account),
    all: openBrokers,
    /** Deletes the persistent sessions of owners that cannot log in any more, and those whose lifetime is over. `now` in epoch seconds. */
    async forgetGone(now: number): Promise<void> {
      for (const broker of await openBrokers()) {
        await broker.forgetExpired();
        for (const owners of splitIntoBatches(broker.ownersWithSessions(), batch_size))
          for (const owner of await findGoneOwners(deps.db, owners, now)) await broker.forget(owner);
      }
    },
    /** Closes and forgets all brokers. */
    async close(): Promise<void> {
      const opened = await openBrokers();
      brokers.clear();
      for (const broker of opened) broker.close();
    },
  };
}
