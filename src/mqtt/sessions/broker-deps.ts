import type { Database } from '../../db/database.js';
import type { Shares } from '../../lib/shares.js';
import type { DeviceLink } from './device-link.js';
import type { Peers } from './peers.js';
import type { Rules } from './rules.js';
import type { StateWriter } from './state-writer.js';

/** State that the brokers of all accounts share. */
export interface BrokerDeps {
  db: Database;
  /** Epoch milliseconds. */
  clock: () => number;
  rules: Rules;
  writer: StateWriter;
  peers: Peers;
  messageMemory: Shares;
  link: DeviceLink;
  /** Has the wills published that are due then. */
  onWillDeferred(due_at: Date): void;
  /** Aborts when the process ends: what its clients leave is stored all at once. */
  stopped: AbortSignal;
}
