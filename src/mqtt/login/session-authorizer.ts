import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Database } from '../../db/database.js';
import { coalesce } from '../../lib/coalesce.js';
import type { Session } from '../sessions/session.js';
import { applyAuthorization, reauthorize } from './login.js';

/** Rechecks run every 2 s, so a change takes effect within 5 s (reference/mqtt.md#revocation). */
const fresh_ms = 5000;
/** Owners per query: a hundred with a hundred topics each are decoded within milliseconds. */
const batch_size = 100;

interface Options {
  db: Database;
  /** All live sessions. */
  sessions: ReadonlySet<Session>;
  offlineSessions: OfflineSessions;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** Persistent sessions without a connection. */
export interface OfflineSessions {
  owners(): Promise<readonly string[]>;
  /** Deletes the sessions of owners whose credentials or keys no longer exist. */
  forget(owners: ReadonlySet<string>): Promise<void>;
}

/** Keeps the permissions of sessions up to date. */
export interface SessionAuthorizer {
  isFresh(session: Session): boolean;
  /** Evaluates `test` on current permissions. @throws what the database throws */
  allows(session: Session, test: (session: Session) => boolean): Promise<boolean>;
  /** Reads the permissions of one session again. */
  refresh(session: Session): Promise<void>;
  /** Reads the permissions of all sessions again, and deletes offline sessions whose owner is gone. */
  recheck(): Promise<void>;
}

/** Creates the authorizer of all sessions of a process. */
export function createSessionAuthorizer({ db, sessions, offlineSessions, clock }: Options): SessionAuthorizer {
  const isFresh = ({ checked }: Session) => performance.now() - checked < fresh_ms;

  async function refreshAll(outdated: readonly Session[]): Promise<void> {
    const sessionsByOwner = groupByOwner(outdated);
    for (const owners of splitIntoBatches([...sessionsByOwner.keys()])) {
      const times = { checked: performance.now(), now: clock() / 1000 };
      const { authorizations } = await reauthorize(db, owners, times.now, (owner) =>
        Math.min(...(sessionsByOwner.get(owner) ?? []).map(({ topics_read_at }) => topics_read_at)),
      );
      for (const owner of owners)
        for (const session of sessionsByOwner.get(owner) ?? [])
          applyAuthorization(session, authorizations.get(owner), times);
      await nextTurn();
    }
  }

  const recheck = coalesce(async () => {
    await refreshAll([...sessions]);
    for (const owners of splitIntoBatches(await offlineSessions.owners())) {
      const { gone } = await reauthorize(db, owners, clock() / 1000, () => Number.POSITIVE_INFINITY);
      await offlineSessions.forget(gone);
    }
  });

  return {
    isFresh,
    /**
     * A permission granted a moment ago counts at once: the database is asked before a refusal. With stale permissions
     * (after an outage) all sessions are rechecked, because the receivers of a message need fresh ones too.
     */
    async allows(session, test) {
      if (session.revoked) return false;
      if (isFresh(session) && test(session)) return true;
      await (isFresh(session) ? session.refresh() : recheck());
      return !session.revoked && isFresh(session) && test(session);
    },
    refresh: (session) => refreshAll([session]),
    recheck,
  };
}

function groupByOwner(sessions: readonly Session[]): ReadonlyMap<string, readonly Session[]> {
  const groups = new Map<string, Session[]>();
  for (const session of sessions) {
    const group = groups.get(session.owner);
    if (group === undefined) groups.set(session.owner, [session]);
    else group.push(session);
  }
  return groups;
}

function* splitIntoBatches(owners: readonly string[]): Iterable<readonly string[]> {
  for (let at = 0; at < owners.length; at += batch_size) yield owners.slice(at, at + batch_size);
}
