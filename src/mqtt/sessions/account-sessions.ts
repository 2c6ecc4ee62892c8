import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../db/database.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { createKeyedMutex } from '../../lib/keyed-mutex.js';
import { reasons } from '../connection/reasons.js';
import { ownerOfClientIds } from '../login/login.js';
import type { AccountChange } from '../store/changes.js';
import { deleteQueue, type QueueLength } from '../store/queue.js';
import {
  type ConnectionRef,
  deleteSession,
  findSession,
  findSessions,
  isPreviousEnded,
  removePrevious,
  type StoredSession,
  type StoredSubscription,
  saveSession,
  sessionIdOf,
} from '../store/sessions.js';
import { createFilterTree } from './filter-tree.js';
import type { Peers } from './peers.js';
import type { Qos, Session } from './session.js';

const max_offline_sessions = 10;
const max_attempts = 10;
const takeover_limit_ms = 5000;
const takeover_poll_ms = 50;
/** Connections to the database are limited. */
const store_batch_size = 100;

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
}

/** The sessions of one account, by client id. Each belongs to its owner while it is connected or persistent. */
export interface AccountSessions {
  /** Claims the client id of a connection. @returns undefined if another owner has it. @throws what the database throws */
  claim(session: Session, isPersistent: boolean): Promise<ClaimedSession | undefined>;
  /** Ends a connection; a persistent session waits for the next one. */
  leave(session: Session): Promise<void>;
  find(client_id: string): SessionRecord | undefined;
  /**
   * Stores the subscriptions of a connection. @returns whether there was something to store
   * @throws Error if the connection was replaced, what the database throws
   */
  saveSubscriptions(session: Session): Promise<boolean>;
  /** Finds the sessions with a matching subscription that do not get a message from this process alone. */
  match(topic: string): ReadonlyMap<SessionRecord, Qos>;
  /** Owners of persistent sessions without a connection. */
  ownersWithSessions(): readonly string[];
  /** Deletes the persistent sessions of an owner that have no connection. */
  forget(owner: string): Promise<void>;
  /** Stores the clean sessions of this instance, so that other instances know them. */
  storeClean(): Promise<void>;
  /** Applies a change that another instance has made, and closes the connections that it has replaced. */
  apply(change: SessionChange): Promise<void>;
}

type SessionChange = Extract<AccountChange, { kind: 'session' | 'released' | 'deleted' }>;

interface Deps {
  db: Database;
  account: string;
  peers: Peers;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

/** Loads the sessions of an account. @throws what the database throws */
export async function openAccountSessions({ db, account, peers, failed }: Deps): Promise<AccountSessions> {
  const records = new Map<string, SessionRecord>();
  const filters = createFilterTree<SessionRecord>();
  /** Client ids by owner, least recently used first. */
  const offline = new Map<string, Set<string>>();
  const lock = createKeyedMutex();

  function drop(record: SessionRecord): void {
    const { client_id, owner, subscriptions } = record.state;
    for (const { topic } of subscriptions) filters.remove(topic, record);
    const ids = offline.get(owner);
    ids?.delete(client_id);
    if (ids?.size === 0) offline.delete(owner);
    records.delete(client_id);
  }

  /** Replaces what is known of a session. */
  function put(record: SessionRecord, state: StoredSession, isStored: boolean): void {
    drop(record);
    Object.assign(record, { state, isStored });
    const { client_id, owner, persistent, instance, subscriptions } = state;
    records.set(client_id, record);
    if (persistent || instance !== peers.id)
      for (const { topic, qos } of subscriptions) filters.add(topic, record, qos);
    if (persistent && instance === null) offline.set(owner, (offline.get(owner) ?? new Set<string>()).add(client_id));
  }

  function load(state: StoredSession): SessionRecord {
    const record = records.get(state.client_id) ?? { state, isStored: true, live: new Set<Session>() };
    const isHeld = state.instance !== null && peers.isLive(state.instance);
    put(record, isHeld || state.instance === null ? state : { ...state, instance: null, cut: true }, true);
    return record;
  }

  async function reload(client_id: string): Promise<void> {
    const found = await findSession(db, sessionIdOf(account, client_id));
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
    state.persistent || live.size > 0 || (state.instance !== null && peers.isLive(state.instance));

  const nextVersion = (state: StoredSession | undefined) => Math.max((state?.version ?? 0) + 1, Date.now());

  async function remove(record: SessionRecord): Promise<void> {
    if (record.isStored && !(await deleteSession(db, record.state))) return reload(record.state.client_id);
    drop(record);
    if (record.state.persistent) await deleteQueue(db, record.state.session);
  }

  async function tryToClaim(session: Session, isPersistent: boolean): Promise<ClaimedSession | 'taken' | 'changed'> {
    const { client_id, connection } = session;
    const owner = ownerOfClientIds(session);
    const known = records.get(client_id);
    const before = known?.state;
    const isOwn = before?.owner === owner || before?.owner === session.owner;
    if (known !== undefined && !isOwn && isInUse(known)) return 'taken';
    const isResumed = isPersistent && before?.persistent === true && isOwn;
    const previousInstance = before?.instance ?? null;
    const isElsewhere = previousInstance !== null && previousInstance !== peers.id && peers.isLive(previousInstance);
    const state: StoredSession = {
      _id: sessionIdOf(account, client_id),
      account,
      client_id,
      owner,
      session: isResumed ? before.session : randomUUID(),
      persistent: isPersistent,
      instance: peers.id,
      connection,
      version: nextVersion(before),
      subscriptions: isResumed ? before.subscriptions : [],
      ...(isElsewhere && before && { previous: { instance: previousInstance, connection: before.connection } }),
    };
    const isStored = isPersistent || !peers.isAlone();
    if (!(await save(known, isStored ? state : undefined))) return 'changed';
    if (before?.persistent === true && !isResumed) await deleteQueue(db, before.session);
    const record = known ?? { state, isStored, live: new Set<Session>() };
    if (!isResumed) delete record.length;
    const previous = [...record.live];
    const { previous: replaced, ...held } = state;
    put(record, held, isStored);
    record.live.add(session);
    const isHeldByDead = previousInstance !== null && previousInstance !== peers.id && !isElsewhere;
    const wasCut = isResumed && (before.cut === true || isHeldByDead);
    return { record, previous, replaced, isResumed, wasCut };
  }

  async function claimLocked(session: Session, isPersistent: boolean): Promise<ClaimedSession | undefined> {
    for (let attempt = 0; attempt < max_attempts; attempt++) {
      const claimed = await tryToClaim(session, isPersistent);
      if (claimed === 'taken') return undefined;
      if (claimed !== 'changed') return claimed;
      await reload(session.client_id);
    }
    throw new Error('the session changes all the time');
  }

  /** Waits until another instance has closed the connection that was replaced, and stored what is left to acknowledge. */
  async function waitForPrevious(_id: string, { instance, connection }: ConnectionRef): Promise<void> {
    const begun = performance.now();
    while (peers.isLive(instance) && performance.now() - begun < takeover_limit_ms) {
      if (await isPreviousEnded(db, _id, connection)) return;
      await sleep(takeover_poll_ms);
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

  /** Deletes the sessions of an owner that were away for longest. */
  async function limitOffline(owner: string): Promise<void> {
    const ids = [...(offline.get(owner) ?? [])];
    for (const client_id of ids.slice(0, Math.max(0, ids.length - max_offline_sessions)))
      await forgetSession(client_id, owner);
  }

  function forgetSession(client_id: string, owner: string): Promise<void> {
    return lock(client_id, async () => {
      const record = records.get(client_id);
      if (record === undefined || offline.get(owner)?.has(client_id) !== true || record.live.size > 0) return;
      await remove(record);
    });
  }

  for (const state of await findSessions(db, account)) load(state);

  return {
    async claim(session, isPersistent) {
      const { client_id } = session;
      // not while it waits: the other instance may be about to replace this connection
      const claimed = await lock(client_id, () => claimLocked(session, isPersistent));
      if (claimed?.replaced !== undefined) await waitForPrevious(sessionIdOf(account, client_id), claimed.replaced);
      return claimed;
    },
    async leave(session) {
      const { client_id, connection } = session;
      await lock(client_id, async () => {
        const record = records.get(client_id);
        record?.live.delete(session);
        if (record === undefined || record.state.connection !== connection) return;
        if (!record.state.persistent) return remove(record);
        const state = { ...record.state, instance: null, seen_at: new Date(), version: nextVersion(record.state) };
        const isSaved = await save(record, state).catch((error: unknown) => {
          put(record, state, true);
          throw error;
        });
        if (isSaved) put(record, state, true);
        else await reload(client_id);
      });
      await limitOffline(ownerOfClientIds(session));
    },
    find: (client_id) => records.get(client_id),
    saveSubscriptions: (session) =>
      lock(session.client_id, async () => {
        const record = records.get(session.client_id);
        if (record === undefined || record.state.connection !== session.connection) throw new Error('replaced');
        if (!record.isStored || hasSameSubscriptions(record.state, session)) return false;
        const subscriptions = subscriptionsOf(session);
        const state = { ...record.state, subscriptions, version: nextVersion(record.state) };
        if (!(await save(record, state))) throw new Error('the session was changed by another instance');
        put(record, state, true);
        return true;
      }),
    match: filters.match,
    ownersWithSessions: () => [...offline.keys()],
    async forget(owner) {
      for (const client_id of [...(offline.get(owner) ?? [])]) await forgetSession(client_id, owner);
    },
    async storeClean() {
      const unstored = [...records.values()].filter(({ isStored }) => !isStored);
      for (const batch of splitIntoBatches(unstored, store_batch_size))
        await Promise.all(batch.map(({ state: { client_id } }) => lock(client_id, () => storeLocked(client_id))));
    },
    async apply(change) {
      if (change.kind === 'session' && change.state.instance === peers.id) return;
      await lock(change.client_id, async () => applyLocked(change));
    },
  };

  async function storeLocked(client_id: string): Promise<void> {
    const record = records.get(client_id);
    if (record === undefined || record.isStored) return;
    const [session] = [...record.live].slice(-1);
    const subscriptions = session === undefined ? [] : subscriptionsOf(session);
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

function subscriptionsOf({ subscriptions }: Session): StoredSubscription[] {
  return [...subscriptions].map(([topic, { qos }]) => ({ topic, qos }));
}

function hasSameSubscriptions({ subscriptions }: StoredSession, session: Session): boolean {
  if (subscriptions.length !== session.subscriptions.size) return false;
  return subscriptions.every(({ topic, qos }) => session.subscriptions.get(topic)?.qos === qos);
}
