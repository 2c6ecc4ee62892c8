import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { splitIntoBatches } from '../../lib/batches.js';
import { createKeyedMutex } from '../../lib/keyed-mutex.js';
import { reasons } from '../connection/reasons.js';
import { findGoneOwners } from '../login/login.js';
import type { AccountChange } from '../store/changes.js';
import { createRandomId, joinKey } from '../store/keys.js';
import { type AddressedMessage, isExpired, type SharedMessage } from '../store/messages.js';
import { deleteQueue, findShared } from '../store/queue.js';
import {
  type ConnectionRef,
  deleteSession,
  findSession,
  findSessions,
  isPreviousEnded,
  removePrevious,
  type StoredSession,
  saveSession,
  session_ttl_s,
} from '../store/sessions.js';
import type { BrokerDeps } from './broker-deps.js';
import type { FilterMatch } from './filter-tree.js';
import type { Session } from './session.js';
import { isMember, listSubscriptions, type SharedGroups } from './session-filters.js';
import { type SessionRecord, SessionRecords } from './session-records.js';
import { findDelay } from './wills.js';

const max_offline_sessions = 10;
const max_attempts = 10;
const previous_limit_ms = 5000;
const previous_poll_ms = 50;
/** Connections to the database are limited. */
const store_batch_size = 100;
/** Owners of sessions per query. */
const max_owners = 100;

/** A client id that was claimed for a connection. */
export interface ClaimedSession {
  record: SessionRecord;
  /** Connections of this instance to close. */
  previous: readonly Session[];
  /** A connection that another instance has to close. */
  replaced: ConnectionRef | undefined;
  /** A persistent session of the owner continues. */
  isResumed: boolean;
  /** The last connection ended with its instance. */
  wasCut: boolean;
  /** The last connection may have a will with a delay. */
  hasDelayedWill: boolean;
}

type SessionChange = Extract<AccountChange, { kind: 'session' | 'released' | 'deleted' }>;

/**
 * Loads the sessions of an account. @throws what the database throws
 * @param redeliver gives a message of a shared subscription to another member of the group
 */
export async function openAccountSessions(
  account: string,
  deps: BrokerDeps,
  redeliver: (message: SharedMessage) => Promise<void>,
): Promise<AccountSessions> {
  return new AccountSessions(account, deps, redeliver, await findSessions(deps.db, account));
}

/** The sessions of one account, by client id. Each belongs to its owner while it is connected or persistent. */
export class AccountSessions {
  /** Chooses the members of shared subscriptions that get a message. */
  readonly shared: SharedGroups;
  private readonly records: SessionRecords;
  private readonly lock = createKeyedMutex();

  constructor(
    private readonly account: string,
    private readonly deps: BrokerDeps,
    private readonly redeliver: (message: SharedMessage) => Promise<void>,
    stored: readonly StoredSession[],
  ) {
    this.records = new SessionRecords(deps.peers, stored);
    this.shared = this.records.shared;
  }

  /** Claims the client id of a connection. @returns undefined if another owner has it. @throws what the database throws */
  async claim(session: Session, isClean: boolean): Promise<ClaimedSession | undefined> {
    const { client_id } = session;
    // not while it waits: the other instance may be about to replace this connection
    const claimed = await this.lock(client_id, () => this.claimLocked(session, isClean));
    if (claimed?.replaced !== undefined) await this.waitForPrevious(joinKey(this.account, client_id), claimed.replaced);
    return claimed;
  }

  /** Ends a connection; a persistent session waits for the next one. */
  async leave(session: Session): Promise<void> {
    await this.lock(session.client_id, () => this.leaveLocked(session));
    // those that were away for longest
    await this.forget(session.client_id_owner, (ids) => ids.slice(0, -max_offline_sessions));
  }

  /**
   * Stores the subscriptions of a connection. A member of shared subscriptions gets a queue until it leaves: calls back.
   * @returns whether there was something to store. @throws Error if the connection was replaced, what the database throws
   */
  saveSubscriptions(session: Session, onQueue: (record: SessionRecord) => void): Promise<boolean> {
    return this.lock(session.client_id, async () => {
      const record = this.records.get(session.client_id);
      if (record === undefined || record.state.connection !== session.connection) throw new Error('replaced');
      const subscriptions = listSubscriptions(session);
      const joins = !record.state.persistent && isMember(subscriptions);
      const isChanged = !isDeepStrictEqual(record.state.subscriptions, subscriptions);
      if (!joins && !(record.isStored && isChanged)) return false;
      const lifetime = joins && { persistent: true, expiry_s: 0 };
      const state = { ...record.state, ...lifetime, subscriptions, version: nextVersion(record.state) };
      if (!(await this.save(record, state))) throw new Error('the session was changed by another instance');
      this.records.put(record, state, true);
      if (joins) onQueue(record);
      return true;
    });
  }

  /** Finds the sessions with a matching subscription that do not get a message from this process alone. */
  match(message: AddressedMessage): ReadonlyMap<SessionRecord, FilterMatch> {
    return this.records.match(message);
  }

  /**
   * Deletes the sessions without a connection whose lifetime is over, or whose owner cannot log in any more. `now` in epoch
   * seconds.
   */
  async forgetGone(now: number): Promise<void> {
    const hasExpired = (client_id: string) => isExpired(this.records.get(client_id)?.state ?? {}, Date.now());
    for (const owner of this.records.listOwners()) await this.forget(owner, (ids) => ids.filter(hasExpired));
    for (const owners of splitIntoBatches(this.records.listOwners(), max_owners))
      for (const owner of await findGoneOwners(this.deps.db, owners, now)) await this.forget(owner);
  }

  /** Stores the clean sessions of this instance, so that other instances know them. */
  async storeClean(): Promise<void> {
    for (const batch of splitIntoBatches(this.records.listUnstored(), store_batch_size))
      await Promise.all(
        batch.map(({ state: { client_id } }) => this.lock(client_id, () => this.storeLocked(client_id))),
      );
  }

  /** Applies a change that another instance has made, and closes the connections that it has replaced. */
  async apply(change: SessionChange): Promise<void> {
    if (change.kind === 'session' && change.state.instance === this.deps.peers.id) return;
    await this.lock(change.client_id, async () => this.applyLocked(change));
  }

  private async reload(client_id: string): Promise<void> {
    const found = await findSession(this.deps.db, joinKey(this.account, client_id));
    const record = this.records.get(client_id);
    if (found !== undefined) this.records.load(found);
    else if (record !== undefined) this.records.drop(record);
  }

  /** Stores the next state of a session, or deletes it. @returns false if another instance has changed it */
  private async save(record: SessionRecord | undefined, state: StoredSession | undefined): Promise<boolean> {
    const { db } = this.deps;
    const stored = record?.isStored === true ? record.state : undefined;
    if (state !== undefined) return saveSession(db, state, stored?.version);
    return stored === undefined || deleteSession(db, stored);
  }

  private isInUse({ state, live }: SessionRecord): boolean {
    return (
      (state.persistent && !isExpired(state, Date.now())) || live.size > 0 || this.deps.peers.isLive(state.instance)
    );
  }

  private async remove(record: SessionRecord, connections?: readonly Session[]): Promise<void> {
    if (record.isStored && !(await deleteSession(this.deps.db, record.state)))
      return this.reload(record.state.client_id);
    this.records.drop(record);
    if (record.state.persistent) await this.endQueue(record.state, connections);
  }

  /** Deletes the queue of a session that ends; what its connections have not acknowledged goes to other members of its groups. */
  private async endQueue({ session }: StoredSession, connections: readonly Session[] = []): Promise<void> {
    const { db, rules } = this.deps;
    await Promise.all(connections.map(({ queue }) => queue?.whenRemoved()));
    const shared = await findShared(db, session);
    await deleteQueue(db, session);
    for (const message of shared) this.redeliver(message).catch(rules.failed);
  }

  private async tryToClaim(session: Session, isClean: boolean): Promise<ClaimedSession | 'taken' | 'changed'> {
    const { client_id, client_id_owner: owner, connection, expiry_s, connect } = session;
    const { will } = connect;
    const known = this.records.get(client_id);
    const before = known?.state;
    const isOwn = before?.owner === owner || before?.owner === session.owner;
    if (known !== undefined && !isOwn && this.isInUse(known)) return 'taken';
    const isKept = before?.persistent === true && before.expiry_s !== 0 && !isExpired(before, Date.now());
    const isResumed = !isClean && isKept && isOwn;
    const isPersistent = isResumed || expiry_s > 0;
    const previousInstance = before?.instance ?? null;
    const replaced =
      before !== undefined && previousInstance !== null && this.deps.peers.isElsewhere(previousInstance)
        ? { instance: previousInstance, connection: before.connection }
        : undefined;
    const state: StoredSession = {
      _id: joinKey(this.account, client_id),
      account: this.account,
      client_id,
      owner,
      session: isResumed ? before.session : createRandomId(),
      persistent: isPersistent,
      instance: this.deps.peers.id,
      connection,
      version: nextVersion(before),
      subscriptions: isResumed ? before.subscriptions : [],
      ...(expiry_s < session_ttl_s && isPersistent && { expiry_s }),
      ...(will !== undefined && findDelay(will, session) > 0 && { has_delayed_will: true }),
    };
    const isStored = isPersistent || !this.deps.peers.isAlone();
    const saved = replaced === undefined ? state : { ...state, previous: replaced };
    if (!(await this.save(known, isStored ? saved : undefined))) return 'changed';
    const record = known ?? { state, isStored, live: new Set<Session>() };
    if (!isResumed) delete record.length;
    const previous = [...record.live];
    this.records.put(record, state, isStored);
    record.live.add(session);
    if (before?.persistent === true && !isResumed) await this.endQueue(before, previous);
    const isHeldByDead = previousInstance !== null && !this.deps.peers.isLive(previousInstance);
    const wasCut = isResumed && (before.cut === true || isHeldByDead);
    return { record, previous, replaced, isResumed, wasCut, hasDelayedWill: before?.has_delayed_will === true };
  }

  private async claimLocked(session: Session, isClean: boolean): Promise<ClaimedSession | undefined> {
    for (let attempt = 0; attempt < max_attempts; attempt++) {
      const claimed = await this.tryToClaim(session, isClean);
      if (claimed === 'taken') return undefined;
      if (claimed !== 'changed') return claimed;
      await this.reload(session.client_id);
    }
    throw new Error('the session changes all the time');
  }

  private async leaveLocked(session: Session): Promise<void> {
    const { client_id, connection } = session;
    const record = this.records.get(client_id);
    record?.live.delete(session);
    if (record === undefined || record.state.connection !== connection) return;
    const { expiry_s } = session;
    if (!record.state.persistent || expiry_s === 0) return this.remove(record, [session]);
    const seen_at = new Date();
    const expires_at = new Date(seen_at.getTime() + expiry_s * 1000);
    const expiry = expiry_s < session_ttl_s && { expiry_s, expires_at };
    const state = { ...record.state, instance: null, seen_at, version: nextVersion(record.state), ...expiry };
    const isSaved = await this.save(record, state).catch((error: unknown) => {
      this.records.put(record, state, true);
      throw error;
    });
    if (isSaved) this.records.put(record, state, true);
    else await this.reload(client_id);
  }

  /** Waits until another instance has closed the connection of a session, and stored what is left to acknowledge. */
  private async waitForPrevious(_id: string, { instance, connection }: ConnectionRef): Promise<void> {
    const begun = performance.now();
    while (this.deps.peers.isLive(instance) && performance.now() - begun < previous_limit_ms) {
      if (await isPreviousEnded(this.deps.db, _id, connection)) return;
      await sleep(previous_poll_ms);
    }
  }

  /** Closes the connections of a client id that is connected to another instance now. */
  private endReplaced(record: SessionRecord, { _id, previous }: StoredSession): void {
    const replaced = [...record.live];
    for (const session of replaced) session.end(reasons.taken_over);
    const report = async () => {
      await Promise.all(replaced.map(({ left }) => left));
      if (previous?.instance === this.deps.peers.id) await removePrevious(this.deps.db, _id, previous.connection);
    };
    report().catch(this.deps.rules.failed);
  }

  /** Deletes sessions of an owner that have no connection. @param select chooses client ids, by default all */
  private async forget(owner: string, select = (ids: readonly string[]) => ids): Promise<void> {
    for (const client_id of select([...this.records.offlineOf(owner)]))
      await this.lock(client_id, async () => {
        const record = this.records.get(client_id);
        if (record === undefined || !this.records.offlineOf(owner).has(client_id) || record.live.size > 0) return;
        await this.remove(record);
      });
  }

  private async storeLocked(client_id: string): Promise<void> {
    const record = this.records.get(client_id);
    if (record === undefined || record.isStored) return;
    const [session] = [...record.live].slice(-1);
    const subscriptions = session === undefined ? [] : listSubscriptions(session);
    const state = { ...record.state, subscriptions, version: nextVersion(record.state) };
    if (await this.save(record, state)) return this.records.put(record, state, true);
    for (const session of record.live) session.end(reasons.taken_over);
    await this.reload(client_id);
  }

  private applyLocked(change: SessionChange): void {
    const record = this.records.get(change.client_id);
    if (change.kind === 'deleted') {
      if (record !== undefined && record.live.size === 0) this.records.drop(record);
      return;
    }
    const { version = 0 } = change.kind === 'released' ? change.fields : change.state;
    if (record !== undefined && version <= record.state.version) {
      // it was read before the change arrived, but the other instance still waits
      if (change.kind === 'session' && record.state.connection === change.state.connection)
        this.endReplaced(record, change.state);
      return;
    }
    if (change.kind === 'session') {
      const { state } = change;
      const changed = record ?? { state, isStored: true, live: new Set<Session>() };
      this.records.put(changed, state, true);
      this.endReplaced(changed, state);
    } else if (record !== undefined) this.records.put(record, { ...record.state, ...change.fields }, true);
  }
}

const nextVersion = (state: StoredSession | undefined) => Math.max((state?.version ?? 0) + 1, Date.now());
