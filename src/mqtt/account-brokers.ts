import { type AccountBroker, type BrokerRules, openAccountBroker } from './account-broker.js';

/** The brokers of all accounts, each opened at the first login of its account. */
export interface AccountBrokers {
  of(account: string): Promise<AccountBroker>;
  /** Owners of persistent sessions without a connection. */
  ownersWithSessions(): Promise<readonly string[]>;
  /** Deletes the persistent sessions of these owners that have no connection. */
  forget(owners: ReadonlySet<string>): Promise<void>;
  close(): Promise<void>;
}

/** Creates an empty collection of brokers that share their rules. */
export function createAccountBrokers(rules: BrokerRules): AccountBrokers {
  const brokers = new Map<string, Promise<AccountBroker>>();
  return {
    of(account) {
      const existing = brokers.get(account);
      if (existing !== undefined) return existing;
      const opened = openAccountBroker(rules);
      brokers.set(account, opened);
      return opened;
    },
    async ownersWithSessions() {
      const opened = await Promise.all(brokers.values());
      return opened.flatMap((broker) => broker.ownersWithSessions());
    },
    async forget(owners) {
      if (owners.size === 0) return;
      const opened = await Promise.all(brokers.values());
      for (const broker of opened) for (const owner of owners) await broker.forget(owner);
    },
    async close() {
      for (const broker of brokers.values()) await (await broker).close();
    },
  };
}
