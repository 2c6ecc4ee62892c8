import type { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Permissions } from './permissions.js';
import type { TopicLevels } from './topics.js';

export type Qos = 0 | 1 | 2;

/** A granted subscription of a session. */
export interface GrantedSubscription {
  levels: TopicLevels;
  qos: Qos;
}

/** A connection that has logged in. */
export interface Session {
  readonly account: string;
  /** The credentials or the API key of the login. */
  readonly owner: string;
  readonly client_id: string;
  readonly stream: Duplex;
  /** Resolves when the broker has finished with the connection. */
  readonly ended: Promise<void>;
  permissions: Permissions;
  /** When the topics in `permissions` were read, in epoch seconds. */
  topics_read_at: number;
  /** When `permissions` were read (`performance.now()`); stale ones allow nothing. */
  checked: number;
  /** A revoked session may do nothing more and publishes no will. */
  revoked: boolean;
  /** Settles when all publishes received so far are settled. */
  publishQueue: Promise<void>;
  /** Granted subscriptions by filter. */
  subscriptions: Map<string, GrantedSubscription>;
  /** Reads `permissions` again. @throws what the database throws */
  refresh(): Promise<void>;
}

/** Resolves when a stream has closed and aedes has handled the event. */
export async function waitForEnd(stream: Duplex): Promise<void> {
  if (!stream.closed) await new Promise((resolve) => stream.once('close', resolve));
  for (let turns = 0; turns < 3; turns++) await nextTurn();
}
