import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { splitIntoBatches } from '../../lib/batches.js';
import { createKeyedMutex } from '../../lib/keyed-mutex.js';
import { reasons } from '../connection/reasons.js';
import { findGoneOwners } from '../login/login.js';
import type { AccountChange } from '../store/changes.js';
import { createRandomId, joinKey } from '../store/keys.js';
import { isExpired, type SharedMessage } from '../store/messages.js';
import { deleteQueue, findShared, type QueueLength } from '../store/queue.js';
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
import type { Session } from './session.js';
import { createSessionFilters, isMember, listSubscriptions } from './session-filters.js';
import { findDelay } from './wills.js';

const max_offline_sessions = 10;
const max_attempts = 10;
const previous_limit_ms = 5000;
const previous_poll_ms = 50;
/** Connections to the database are limited. */
const store_batch_size = 100;
/** Owners of sessions per query. */
const max_owners = 100;

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

/** The sessions of one account, by client id. Each belongs to its owner while it is connected or persistent. */
export type AccountSessions = Awaited<ReturnType<typeof openAccountSessions>>;

/**
 * Loads the sessions of an account. @throws what the database throws
 * @param redeliver gives a message of a shared subscription to another member of the group
 */
export async function openAccountSessions(
  account: string,
  { db, peers, rules: { failed } }: BrokerDeps,
  redeliver: (message: SharedMessage) => Promise<void>,
) {
  const records = new Map<string, SessionRecord>();
  const filters = createSessionFilters<SessionRecord>(records, peers);
  /** Client ids by owner, least recently used first. */
  const offline = new Map<string, Set<string>>();
  const lock = createKeyedMutex();

  function drop(record: SessionRecord): void {
    const { client_id, owner } = record.state;
    filters.remove(record);
    const ids = offline.get(owner);
    ids?.delete(client_id);
    if (ids?.size === 0) offline.delete(owner);
    records.delete(client_id);
  }

  /** Replaces what is known of a session. */
  function put(record: SessionRecord, state: StoredSession, isStored: boolean): void {
    drop(record);
    Object.assign(record, { state, isStored });
    const { client_id, owner, persistent, instance } = state;
    records.set(client_id, record);
    if (persistent || instance !== peers.id) filters.add(record);
    if (persistent && instance === null) offline.set(owner, (offline.get(owner) ?? new Set<string>()).add(client_id));
  }

  function load(state: StoredSession): SessionRecord {
    const record = records.get(state.client_id) ?? { state, isStored: true, live: new Set<Session>() };
    const isHeldByDead = state.instance !== null && !peers.isLive(state.instance);
    put(record, isHeldByDead ? { ...state, instance: null, cut: true } : state, true);
    return record;
  }

  async function reload(client_id: string): Promise<void> {
    const found = await findSession(db, joinKey(account, client_id));
    const record = records.get(client_id);
    if (found !== undefined) load(found);
    else if (record !== undefined) drop(record);
  }

  /** Stores the next state of a session, or deletes it. @returns false if another instance has changed it */
  async function save(record: SessionRecord | undefined, state: StoredSession | undefined): Promise<boolean> {
    const stored = record?.isStored === true ? record.state : undefined;
    if (state !== undefined) return saveSession(db, state, stored?.version);
    return stored === undefined || deleteSession(db, stored);
  }

  const isInUse = ({ state, live }: SessionRecord) =>
    (state.persistent && !isExpired(state, Date.now())) || live.size > 0 || peers.isLive(state.instance);

  const nextVersion = (state: StoredSession | undefined) => Math.max((state?.version ?? 0) + 1, Date.now());

  async function remove(record: SessionRecord, connections?: readonly Session[]): Promise<void> {
    if (record.isStored && !(await deleteSession(db, record.state))) return reload(record.state.client_id);
    drop(record);
    if (record.state.persistent) await endQueue(record.state, connections);
  }

  /** Deletes the queue of a session that ends; what its connections have not acknowledged goes to other members of its groups. */
  async function endQueue({ session }: StoredSession, connections: readonly Session[] = []): Promise<void> {
    await Promise.all(connections.map(({ queue }) => queue?.whenRemoved()));
    const shared = await findShared(db, session);
    await deleteQueue(db, session);
    for (const message of shared) redeliver(message).catch(failed);
  }

  async function tryToClaim(session: Session, isClean: boolean): Promise<ClaimedSession | 'taken' | 'changed'> {
    const { client_id, client_id_owner: owner, connection, expiry_s, connect } = session;
    const { will } = connect;
    const known = records.get(client_id);
    const before = known?.state;
    const isOwn = before?.owner === owner || before?.owner === session.owner;
    if (known !== undefined && !isOwn && isInUse(known)) return 'taken';
    const isKept = before?.persistent === true && before.expiry_s !== 0 && !isExpired(before, Date.now());
    const isResumed = !isClean && isKept && isOwn;
    const isPersistent = isResumed || expiry_s > 0;
    const previousInstance = before?.instance ?? null;
    const replaced =
      before !== undefined && previousInstance !== null && peers.isElsewhere(previousInstance)
        ? { instance: previousInstance, connection: before.connection }
        : undefined;
    const state: StoredSession = {
      _id: joinKey(account, client_id),
      account,
      client_id,
      owner,
      session: isResumed ? before.session : createRandomId(),
      persistent: isPersistent,
      instance: peers.id,
      connection,
      version: nextVersion(before),
      subscriptions: isResumed ? before.subscriptions : [],
      ...(expiry_s < session_ttl_s && isPersistent && { expiry_s }),
      ...(will !== undefined && findDelay(will, session) > 0 && { has_delayed_will: true }),
    };
    const isStored = isPersistent || !peers.isAlone();
    const saved = replaced === undefined ? state : { ...state, previous: replaced };
    if (!(await save(known, isStored ? saved : undefined))) return 'changed';
    const record = known ?? { state, isStored, live: new Set<Session>() };
    if (!isResumed) delete record.length;
    const previous = [...record.live];
    put(record, state, isStored);
    record.live.add(session);
    if (before?.persistent === true && !isResumed) await endQueue(before, previous);
    const isHeldByDead = previousInstance !== null && !peers.isLive(previousInstance);
    const wasCut = isResumed && (before.cut === true || isHeldByDead);
    return { record, previous, replaced, isResumed, wasCut, hasDelayedWill: before?.has_delayed_will === true };
  }

  async function claimLocked(session: Session, isClean: boolean): Promise<ClaimedSession | undefined> {
    for (let attempt = 0; attempt < max_attempts; attempt++) {
      const claimed = await tryToClaim(session, isClean);
      if (claimed === 'taken') return undefined;
      if (claimed !== 'changed') return claimed;
      await reload(session.client_id);
    }
    throw new Error('the session changes all the time');
  }

  /** Waits until another instance has closed the connection of a session, and stored what is left to acknowledge. */
  async function waitForPrevious(_id: string, { instance, connection }: ConnectionRef): Promise<void> {
    const begun = performance.now();
    while (peers.isLive(instance) && performance.now() - begun < previous_limit_ms) {
      if (await isPreviousEnded(db, _id, connection)) return;
      await sleep(previous_poll_ms);
    }
  }

  /** Closes the connections of a client id that is connected to another instance now. */
  function endReplaced(record: SessionRecord, { _id, previous }: StoredSession): void {
    const replaced = [...record.live];
    for (const session of replaced) session.end(reasons.taken_over);
    const report = async () => {
      await Promise.all(replaced.map(({ left }) => left));
      if (previous?.instance === peers.id) await removePrevious(db, _id, previous.connection);
    };
    report().catch(failed);
  }

  /** Deletes sessions of an owner that have no connection. @param select chooses client ids, by default all */
  async function forget(owner: string, select = (ids: readonly string[]) => ids): Promise<void> {
    for (const client_id of select([...(offline.get(owner) ?? [])]))
      await lock(client_id, async () => {
        const record = records.get(client_id);
        if (record === undefined || offline.get(owner)?.has(client_id) !== true || record.live.size > 0) return;
        await remove(record);
      });
  }

  for (const state of await findSessions(db, account)) load(state);

  return {
    /** Claims the client id of a connection. @returns undefined if another owner has it. @throws what the database throws */
    async claim(session: Session, isClean: boolean): Promise<ClaimedSession | undefined> {
      const { client_id } = session;
      // not while it waits: the other instance may be about to replace this connection
      const claimed = await lock(client_id, () => claimLocked(session, isClean));
      if (claimed?.replaced !== undefined) await waitForPrevious(joinKey(account, client_id), claimed.replaced);
      return claimed;
    },
    /** Ends a connection; a persistent session waits for the next one. */
    async leave(session: Session): Promise<void> {
      const { client_id, connection } = session;
      await lock(client_id, async () => {
        const record = records.get(client_id);
        record?.live.delete(session);
        if (record === undefined || record.state.connection !== connection) return;
        const { expiry_s } = session;
        if (!record.state.persistent || expiry_s === 0) return remove(record, [session]);
        const seen_at = new Date();
        const expires_at = new Date(seen_at.getTime() + expiry_s * 1000);
        const expiry = expiry_s < session_ttl_s && { expiry_s, expires_at };
        const state = { ...record.state, instance: null, seen_at, version: nextVersion(record.state), ...expiry };
        const isSaved = await save(record, state).catch((error: unknown) => {
          put(record, state, true);
          throw error;
        });
        if (isSaved) put(record, state, true);
        else await reload(client_id);
      });
      // those that were away for longest
      await forget(session.client_id_owner, (ids) => ids.slice(0, -max_offline_sessions));
    },
    /**
     * Stores the subscriptions of a connection. A member of shared subscriptions gets a queue until it leaves: calls back.
     * @returns whether there was something to store. @throws Error if the connection was replaced, what the database throws
     */
    saveSubscriptions: (session: Session, onQueue: (record: SessionRecord) => void) =>
      lock(session.client_id, async () => {
        const record = records.get(session.client_id);
        if (record === undefined || record.state.connection !== session.connection) throw new Error('replaced');
        const subscriptions = listSubscriptions(session);
        const joins = !record.state.persistent && isMember(subscriptions);
        const isChanged = !isDeepStrictEqual(record.state.subscriptions, subscriptions);
        if (!joins && !(record.isStored && isChanged)) return false;
        const lifetime = joins && { persistent: true, expiry_s: 0 };
        const state = { ...record.state, ...lifetime, subscriptions, version: nextVersion(record.state) };
        if (!(await save(record, state))) throw new Error('the session was changed by another instance');
        put(record, state, true);
        if (joins) onQueue(record);
        return true;
      }),
    shared: filters.shared,
    /** Finds the sessions with a matching subscription that do not get a message from this process alone. */
    match: filters.match,
    /**
     * Deletes the sessions without a connection whose lifetime is over, or whose owner cannot log in any more. `now` in epoch
     * seconds.
     */
    async forgetGone(now: number): Promise<void> {
      const hasExpired = (client_id: string) => isExpired(records.get(client_id)?.state ?? {}, Date.now());
      for (const owner of [...offline.keys()]) await forget(owner, (ids) => ids.filter(hasExpired));
      for (const owners of splitIntoBatches([...offline.keys()], max_owners))
        for (const owner of await findGoneOwners(db, owners, now)) await forget(owner);
    },
    /** Stores the clean sessions of this instance, so that other instances know them. */
    async storeClean(): Promise<void> {
      const unstored = [...records.values()].filter(({ isStored }) => !isStored);
      for (const batch of splitIntoBatches(unstored, store_batch_size))
        await Promise.all(batch.map(({ state: { client_id } }) => lock(client_id, () => storeLocked(client_id))));
    },
    /** Applies a change that another instance has made, and closes the connections that it has replaced. */
    async apply(change: SessionChange): Promise<void> {
      if (change.kind === 'session' && change.state.instance === peers.id) return;
      await lock(change.client_id, async () => applyLocked(change));
    },
  };

  async function storeLocked(client_id: string): Promise<void> {
    const record = records.get(client_id);
    if (record === undefined || record.isStored) return;
    const [session] = [...record.live].slice(-1);
    const subscriptions = session === undefined ? [] : listSubscriptions(session);
    const state = { ...record.state, subscriptions, version: nextVersion(record.state) };
    if (await save(record, state)) return put(record, state, true);
    for (const session of record.live) session.end(reasons.taken_over);
    await reload(client_id);
  }

  function applyLocked(change: SessionChange): void {
    const record = records.get(change.client_id);
    if (change.kind === 'deleted') {
      if (record !== undefined && record.live.size === 0) drop(record);
      return;
    }
    const { version = 0 } = change.kind === 'released' ? change.fields : change.state;
    if (record !== undefined && version <= record.state.version) {
      // it was read before the change arrived, but the other instance still waits
      if (change.kind === 'session' && record.state.connection === change.state.connection)
        endReplaced(record, change.state);
      return;
    }
    if (change.kind === 'session') {
      const { state } = change;
      const changed = record ?? { state, isStored: true, live: new Set<Session>() };
      put(changed, state, true);
      endReplaced(changed, state);
    } else if (record !== undefined) put(record, { ...record.state, ...change.fields }, true);
  }
}
