import type { AddressedMessage } from '../store/messages.js';
import type { QueueLength } from '../store/queue.js';
import type { StoredSession } from '../store/sessions.js';
import type { FilterMatch } from './filter-tree.js';
import type { Peers } from './peers.js';
import type { Session } from './session.js';
import { createSessionFilters, type SharedGroups } from './session-filters.js';

/** The session of a client id, as this instance knows it. */
export interface SessionRecord {
  state: StoredSession;
  /** The database has it; clean sessions are stored only while there are other instances. */
  isStored: boolean;
  /** Connections of this instance; all but the latest are being closed. */
  live: Set<Session>;
  /** Length of the queue, and when it was read (`performance.now()`). */
  length?: QueueLength & { read_at: number };
}

/** The sessions of an account that this instance knows, by client id, subscription and owner. */
export class SessionRecords {
  /** Chooses the members of shared subscriptions that get a message. */
  readonly shared: SharedGroups;
  private readonly records = new Map<string, SessionRecord>();
  private readonly filters;
  /** Client ids by owner, least recently used first. */
  private readonly offline = new Map<string, Set<string>>();

  constructor(
    private readonly peers: Peers,
    stored: readonly StoredSession[],
  ) {
    this.filters = createSessionFilters<SessionRecord>(this.records, peers);
    this.shared = this.filters.shared;
    for (const state of stored) this.load(state);
  }

  get(client_id: string): SessionRecord | undefined {
    return this.records.get(client_id);
  }

  /** Lists the clean sessions that the database does not have. */
  listUnstored(): SessionRecord[] {
    return [...this.records.values()].filter(({ isStored }) => !isStored);
  }

  /** Lists the owners of sessions that wait for a client. */
  listOwners(): string[] {
    return [...this.offline.keys()];
  }

  /** Client ids of the sessions of an owner that wait for a client, least recently used first. */
  offlineOf(owner: string): ReadonlySet<string> {
    return this.offline.get(owner) ?? new Set();
  }

  /** Finds the sessions with a matching subscription that do not get a message from this process alone. */
  match(message: AddressedMessage): ReadonlyMap<SessionRecord, FilterMatch> {
    return this.filters.match(message);
  }

  /** Takes over what the database has of a session. */
  load(state: StoredSession): void {
    const record = this.records.get(state.client_id) ?? { state, isStored: true, live: new Set<Session>() };
    const isHeldByDead = state.instance !== null && !this.peers.isLive(state.instance);
    this.put(record, isHeldByDead ? { ...state, instance: null, cut: true } : state, true);
  }

  /** Replaces what is known of a session. */
  put(record: SessionRecord, state: StoredSession, isStored: boolean): void {
    const { offline } = this;
    this.drop(record);
    Object.assign(record, { state, isStored });
    const { client_id, owner, persistent, instance } = state;
    this.records.set(client_id, record);
    if (persistent || instance !== this.peers.id) this.filters.add(record);
    if (persistent && instance === null) offline.set(owner, (offline.get(owner) ?? new Set<string>()).add(client_id));
  }

  /** Forgets a session. */
  drop(record: SessionRecord): void {
    const { client_id, owner } = record.state;
    this.filters.remove(record);
    const ids = this.offline.get(owner);
    ids?.delete(client_id);
    if (ids?.size === 0) this.offline.delete(owner);
    this.records.delete(client_id);
  }
}
