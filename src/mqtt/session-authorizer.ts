import { coalesce } from '../coalesce.js';
import type { Database } from '../db/database.js';
import { applyAuthorization, reauthorize } from './login.js';
import type { Session } from './session.js';

/** Rechecks run every 2 s, so a change takes effect within 5 s (reference/mqtt.md#revocation). */
const fresh_ms = 5000;

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
    const checked = performance.now();
    const owners = [...new Set(outdated.map(({ owner }) => owner))];
    const { permissions } = await reauthorize(db, owners, clock() / 1000);
    for (const session of outdated) applyAuthorization(session, permissions.get(session.owner), checked);
  }

  const recheck = coalesce(async () => {
    await refreshAll([...sessions]);
    const { gone } = await reauthorize(db, await offlineSessions.owners(), clock() / 1000);
    await offlineSessions.forget(gone);
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
