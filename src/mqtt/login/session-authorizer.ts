import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Database } from '../../db/database.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { coalesce } from '../../lib/coalesce.js';
import { groupBy } from '../../lib/group-by.js';
import type { LogLine } from '../../lib/rate-limited-log.js';
import { formatName } from '../sessions/login-names.js';
import type { Session } from '../sessions/session.js';
import { areUnchanged } from '../store/credentials.js';
import { applyAuthorization, knownLoginOf, reauthorize } from './login.js';

/** Rechecks run every 2 s, so a change takes effect within 5 s (reference/mqtt.md#revocation). */
const fresh_ms = 5000;
/** Owners per query: a hundred with a hundred topics each are decoded within milliseconds. */
const batch_size = 100;
/** Sessions that the database sums up at once. */
const sum_size = 500;
/**
 * Topics are read again even if no change was announced, in case another version of the service changed them: after a
 * random time, so that the reads of many sessions spread.
 */
const min_topics_age_s = 30;
const max_topics_age_s = 60;

interface Options {
  db: Database;
  /** All live sessions. */
  sessions: ReadonlySet<Session>;
  warn: LogLine;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** Keeps the permissions of sessions up to date. */
export type SessionAuthorizer = ReturnType<typeof createSessionAuthorizer>;

/** Creates the authorizer of all sessions of a process. */
export function createSessionAuthorizer({ db, sessions, warn, clock }: Options) {
  const isFresh = ({ checked }: Session) => performance.now() - checked < fresh_ms;

  const topicsReadAt = ({ topics_read_at }: Session) => topics_read_at;

  async function refreshAll(outdated: readonly Session[], readAt = topicsReadAt): Promise<void> {
    const sessionsByOwner = groupBy(outdated, ({ owner }) => owner);
    for (const owners of splitIntoBatches([...sessionsByOwner.keys()], batch_size)) {
      const times = { checked: performance.now(), now: clock() / 1000 };
      const reauthorization = await reauthorize(db, owners, times.now, (owner) =>
        Math.min(...(sessionsByOwner.get(owner) ?? []).map(readAt)),
      );
      for (const owner of owners)
        for (const session of sessionsByOwner.get(owner) ?? []) {
          const reason = applyAuthorization(session, reauthorization, times);
          const names = session.names;
          if (reason !== undefined) warn(`MQTT connection ended: ${reason}`, { reason, ...names }, formatName(names));
        }
      await nextTurn();
    }
  }

  /** Finds the sessions of devices of which something may have changed; the others are fresh again. */
  async function findChanged(devices: readonly Session[]): Promise<Session[]> {
    const changed: Session[] = [];
    for (const batch of splitIntoBatches(devices, sum_size)) {
      const checked = performance.now();
      const logins = batch.flatMap((session) => knownLoginOf(session) ?? []);
      const isUnchanged = await areUnchanged(db, logins, Math.min(...batch.map(topicsReadAt)));
      if (isUnchanged) for (const session of batch) session.checked = Math.max(session.checked, checked);
      else changed.push(...batch);
      await nextTurn();
    }
    return changed;
  }

  const recheck = coalesce(async () => {
    const now = clock() / 1000;
    const due: Session[] = [];
    const devices: Session[] = [];
    const keys: Session[] = [];
    for (const session of sessions) {
      if (areTopicsDue(session, now)) due.push(session);
      else if (knownLoginOf(session) === undefined) keys.push(session);
      else devices.push(session);
    }
    await refreshAll(due, () => 0);
    await refreshAll([...keys, ...(await findChanged(devices))]);
  });

  return {
    isFresh,
    /**
     * Evaluates `test` on current permissions. One granted a moment ago counts at once: the database is asked before a refusal. With stale permissions
     * (after an outage) all sessions are rechecked, because the receivers of a message need fresh ones too.
     * @throws what the database throws
     */
    async allows(session: Session, test: (session: Session) => boolean): Promise<boolean> {
      if (session.revoked) return false;
      if (isFresh(session) && test(session)) return true;
      await (isFresh(session) ? session.refresh() : recheck());
      return !session.revoked && isFresh(session) && test(session);
    },
    /** Reads the permissions of one session again. */
    refresh: (session: Session) => refreshAll([session]),
    /** Reads the permissions of all sessions again. */
    recheck,
  };
}

/** @param now epoch seconds */
function areTopicsDue({ topics_read_at }: Session, now: number): boolean {
  return now - topics_read_at >= min_topics_age_s + Math.random() * (max_topics_age_s - min_topics_age_s);
}
