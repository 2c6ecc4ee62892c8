import type { Outbox } from '../connection/outbox.js';
import type { ConnectPacket, Qos } from '../connection/packets.js';
import type { Reason } from '../connection/reasons.js';
import type { SubscriptionOptions } from '../store/sessions.js';
import type { LoginNames } from './login-names.js';
import type { LoggedIn } from './permissions.js';
import type { ReceivedPackets } from './received-packets.js';
import type { SessionQueue } from './session-queue.js';
import type { SessionWill } from './wills.js';

export type { Qos };

/** A connection that has logged in. */
export interface Session extends LoggedIn {
  /** The device or the key that client ids belong to. */
  readonly client_id_owner: string;
  readonly client_id: string;
  readonly names: LoginNames;
  /** Names the connection. */
  readonly connection: string;
  readonly connect: Pick<ConnectPacket, 'level' | 'keep_alive_s' | 'properties' | 'will'>;
  readonly outbox: Outbox;
  /** Resolves when the connection has ended and the state that outlasts the connection is stored, too. */
  readonly left: Promise<void>;
  /** When the topics in `permissions` were read, in epoch seconds. */
  topics_read_at: number;
  /** When `permissions` were read (`performance.now()`); stale ones allow nothing. */
  checked: number;
  /** A revoked session may do nothing more and publishes no will. */
  revoked: boolean;
  /** Lifetime of the session without a connection; 0 ends it with the connection. */
  expiry_s: number;
  /** CONNACK was sent. */
  isConnected: boolean;
  /** Settles when all publishes received so far are queued for other sessions and instances, but not durable yet. */
  storeQueue: Promise<void>;
  /** Settles when all publishes received so far are settled. */
  publishQueue: Promise<void>;
  /** Granted subscriptions by filter. */
  subscriptions: Map<string, SubscriptionOptions>;
  /** Messages that the client has not acknowledged, if they outlast the connection. */
  queue: SessionQueue | undefined;
  /** The last will of the connection. */
  readonly will: SessionWill;
  /** Publishes the will of a connection that has ended, lets it wait, or takes it back. */
  endWill(): Promise<unknown>;
  /** Packet ids of QoS 2 that the client has not released; undefined before the first one. */
  received: ReceivedPackets | undefined;
  /** Messages that it published, and messages from or for it that were dropped. */
  readonly counts: { messages: number; drops: number };
  /** Reads `permissions` again. @throws what the database throws */
  refresh(): Promise<void>;
  /** Ends the connection at once; a client of MQTT 5 learns the reason. */
  end(reason: Reason): void;
  /** Ends the connection once what it has sent is handled and acknowledged. */
  leave(reason: Reason): void;
}
