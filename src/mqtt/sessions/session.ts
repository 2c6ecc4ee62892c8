import type { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { DesiredMessage } from '../../device-state/store.js';
import type { LoginNames } from '../login/login-names.js';
import type { TopicPermissions } from '../login/permissions.js';
import type { LimitedStream } from '../protocol/packet-limits.js';
import type { TopicLevels } from '../protocol/topics.js';
import type { InputMemory } from './message-memory.js';
import type { ReceivedPackets } from './received-packets.js';
import type { SessionQueue } from './session-queue.js';
import type { SessionWill } from './wills.js';

export type Qos = 0 | 1 | 2;

/** Brings the desired state and the commands of devices to one connection, from what is stored. */
export interface DeviceFeed {
  /** A filter was granted: what it covers is sent once `watched` resolves, from when on changes are handed in. */
  follow(filter: string, watched: Promise<void>): void;
  /** Sends the commands of a device that are open and were not sent on this connection. */
  wakeCommands(device: string): void;
  /** Sends a desired state unless a later one was sent. */
  sendState(message: DesiredMessage): void;
  /** PUBACK. @returns false if the packet was no command */
  acknowledge(packet_id: number): boolean;
  /** Sends again what the filters of the session cover. */
  catchUp(): void;
  /** Closes the connection: what changes does not reach it. */
  end(): void;
}

/** A granted subscription of a session. */
export interface GrantedSubscription {
  levels: TopicLevels;
  qos: Qos;
}

/** A connection that has logged in. */
export interface Session {
  readonly account: string;
  /** The credentials or the API key of the login. Client ids belong to its `ownerOfClientIds`. */
  readonly owner: string;
  readonly client_id: string;
  readonly names: LoginNames;
  /** The client has chosen its id; else the connection has a random one. */
  readonly hasClientId: boolean;
  /** Names the connection. */
  readonly connection: string;
  readonly stream: Duplex;
  /** The stream as the broker reads it, which closes after it, once what the client has sent is handled. */
  input: LimitedStream | undefined;
  /** Resolves when the broker has finished with the connection. */
  readonly ended: Promise<void>;
  /** Resolves when the state that outlasts the connection is stored, too. */
  readonly left: Promise<void>;
  permissions: TopicPermissions;
  /** When the topics in `permissions` were read, in epoch seconds. */
  topics_read_at: number;
  /** When `permissions` were read (`performance.now()`); stale ones allow nothing. */
  checked: number;
  /** A revoked session may do nothing more and publishes no will. */
  revoked: boolean;
  /** Settles when all publishes received so far are queued for other sessions and instances, but not durable yet. */
  storeQueue: Promise<void>;
  /** Settles when all publishes received so far are settled. */
  publishQueue: Promise<void>;
  /** Bytes of the connection that the broker holds; undefined before its login. */
  inputMemory: InputMemory | undefined;
  /** Granted subscriptions by filter. */
  subscriptions: Map<string, GrantedSubscription>;
  /** Continues a persistent session. */
  isResumed: boolean;
  /** Messages that the client has not acknowledged, if they outlast the connection. */
  queue: SessionQueue | undefined;
  /** Brings the desired state and the commands of devices; undefined until a filter covers some. */
  deviceFeed: DeviceFeed | undefined;
  /** Opens `deviceFeed`; undefined before the login. */
  openFeed: (() => DeviceFeed) | undefined;
  /** The last will of the connection. */
  will: SessionWill;
  /** Packet ids of QoS 2 that the client has not released; undefined before the first one. */
  received: ReceivedPackets | undefined;
  /** Messages that it published, and messages from or for it that were dropped. */
  readonly counts: { messages: number; drops: number };
  /** Reads `permissions` again. @throws what the database throws */
  refresh(): Promise<void>;
}

/** Resolves when a stream and what the broker reads instead have closed, and aedes has handled the events. */
export async function waitForEnd(stream: Duplex, connOf: () => Promise<Duplex | undefined>): Promise<void> {
  const waitForClose = async (open: Duplex) => open.closed || new Promise((resolve) => open.once('close', resolve));
  await waitForClose(stream);
  const conn = await connOf();
  if (conn !== undefined) await waitForClose(conn);
  for (let turns = 0; turns < 3; turns++) await nextTurn();
}
