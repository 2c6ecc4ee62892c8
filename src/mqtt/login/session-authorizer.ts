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

/** Keeps the permissions of all sessions of a process up to date. */
export class SessionAuthorizer {
  /** Reads the permissions of all sessions again; concurrent calls share a run. */
  readonly recheck = coalesce(() => this.recheckAll());

  constructor(private readonly options: Options) {}

  /** Reports whether the permissions of a session were read a moment ago. */
  isFresh({ checked }: Session): boolean {
    return performance.now() - checked < fresh_ms;
  }

  /**
   * Evaluates `test` on current permissions. One granted a moment ago counts at once: the database is asked before a
   * refusal. With stale permissions (after an outage) all sessions are rechecked, because the receivers of a message
   * need fresh ones too.
   * @throws what the database throws
   */
  async allows(session: Session, test: (session: Session) => boolean): Promise<boolean> {
    if (session.revoked) return false;
    if (this.isFresh(session) && test(session)) return true;
    await (this.isFresh(session) ? session.refresh() : this.recheck());
    return !session.revoked && this.isFresh(session) && test(session);
  }

  /** Reads the permissions of one session again. */
  async refresh(session: Session): Promise<void> {
    await this.refreshAll([session]);
  }

  private async recheckAll(): Promise<void> {
    const now = this.options.clock() / 1000;
    const due: Session[] = [];
    const devices: Session[] = [];
    const keys: Session[] = [];
    for (const session of this.options.sessions) {
      if (areTopicsDue(session, now)) due.push(session);
      else if (knownLoginOf(session) === undefined) keys.push(session);
      else devices.push(session);
    }
    await this.refreshAll(due, () => 0);
    await this.refreshAll([...keys, ...(await this.findChanged(devices))]);
  }

  private async refreshAll(outdated: readonly Session[], readAt = topicsReadAt): Promise<void> {
    const { db, warn, clock } = this.options;
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
  private async findChanged(devices: readonly Session[]): Promise<Session[]> {
    const changed: Session[] = [];
    for (const batch of splitIntoBatches(devices, sum_size)) {
      const checked = performance.now();
      const logins = batch.flatMap((session) => knownLoginOf(session) ?? []);
      const isUnchanged = await areUnchanged(this.options.db, logins, Math.min(...batch.map(topicsReadAt)));
      if (isUnchanged) for (const session of batch) session.checked = Math.max(session.checked, checked);
      else changed.push(...batch);
      await nextTurn();
    }
    return changed;
  }
}

const topicsReadAt = ({ topics_read_at }: Session) => topics_read_at;

/** @param now epoch seconds */
function areTopicsDue({ topics_read_at }: Session, now: number): boolean {
  return now - topics_read_at >= min_topics_age_s + Math.random() * (max_topics_age_s - min_topics_age_s);
}
