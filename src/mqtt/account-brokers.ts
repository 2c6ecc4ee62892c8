import { getOrStart } from '../lib/promises.js';
import { type AccountBroker, type BrokerDeps, openAccountBroker } from './account-broker.js';

/** The brokers of all accounts, each opened at the first login of its account. */
export interface AccountBrokers {
  /** @throws what the database throws */
  of(account: string): Promise<AccountBroker>;
  /** @returns undefined for an account without a login so far */
  find(account: string): Promise<AccountBroker> | undefined;
  all(): Promise<readonly AccountBroker[]>;
  /** Owners of persistent sessions without a connection. */
  ownersWithSessions(): Promise<readonly string[]>;
  /** Deletes the persistent sessions of these owners that have no connection. */
  forget(owners: ReadonlySet<string>): Promise<void>;
  /** Closes and forgets all brokers. */
  close(): Promise<void>;
}

/** Creates an empty collection of brokers that share `deps`. */
export function createAccountBrokers(deps: BrokerDeps): AccountBrokers {
  const brokers = new Map<string, Promise<AccountBroker>>();
  const openBrokers = async () => {
    const settled = await Promise.allSettled(brokers.values());
    return settled.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  };
  return {
    of: (account) => getOrStart(brokers, account, () => openAccountBroker(account, deps)),
    find: (account) => brokers.get(account),
    all: openBrokers,
    async ownersWithSessions() {
      return (await openBrokers()).flatMap((broker) => broker.ownersWithSessions());
    },
    async forget(owners) {
      if (owners.size === 0) return;
      for (const broker of await openBrokers()) for (const owner of owners) await broker.forget(owner);
    },
    async close() {
      const opened = await openBrokers();
      brokers.clear();
      for (const broker of opened) await broker.close();
    },
  };
}
