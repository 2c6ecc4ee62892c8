import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ResumeToken } from '../../db/change-stream.js';
import type { Database } from '../../db/database.js';
import { awaitLater } from '../../lib/promises.js';
import type { LogLine } from '../../lib/rate-limited-log.js';
import { runWithTimeLimit } from '../../lib/time-limit.js';
import { type AccountChange, openStateChanges, parseStateChange } from '../store/changes.js';
import {
  findBrokers,
  joinBrokers,
  removeBroker,
  reportLife,
  type SeenInstance,
  writeAnswers,
  writePing,
} from '../store/instances.js';

export interface PeerEvents {
  /** Another instance has appeared: it has to know the clients of this one. */
  storeClients(): Promise<void>;
  /** Takes over what a killed instance has left. */
  takeOver(instance: string): Promise<void>;
  /** Applies a change of sessions or retained messages, or delivers a forwarded message. */
  apply(change: AccountChange): Promise<void>;
  /** Closes all connections: this instance was declared dead, or has missed changes. */
  startOver(): Promise<void>;
}

const beat_ms = 1000;
/** An instance that was silent for so long counts as killed. */
const silence_limit_ms = 10_000;
const join_limit_ms = 5000;
const join_poll_ms = 100;
const read_limit_ms = 2000;
/** Questions that arise within this time are asked together. */
const ping_delay_ms = 20;
const retry_ms = 500;

/** The instances of the service that have a broker and use the same database. */
export type Peers = ReturnType<typeof startPeers>;

/** Registers this instance, and follows the others while there are any. */
export function startPeers(db: Database, warn: LogLine, events: PeerEvents) {
  const stopped = new AbortController();
  const place = readPlace();
  let id = randomUUID() as string;
  let live: ReadonlySet<string> = new Set();
  let known: ReadonlySet<string> = new Set();
  let hasJoined = false;
  /** When this instance began to reach the database without a break: before, the silence of others means nothing. */
  let in_touch_since = performance.now();
  let seen_at = performance.now();
  let following: Promise<void> | undefined;
  let ping = 0;
  let nextPing: Promise<number> | undefined;
  /** Latest pings of others that were read here, and of this instance that others have read. */
  const readPings = new Map<string, number>();
  const answers = new Map<string, number>();
  /** Emits `change` whenever something that others wait for may have changed. */
  const news = new EventEmitter().setMaxListeners(0);
  const pause = (ms: number) => sleep(ms, undefined, { signal: stopped.signal }).catch(() => undefined);

  function reportLostTouch(error: unknown): void {
    // at the start the database may still be upgraded, and is reported by itself
    if (hasJoined) warn('MQTT broker has lost touch with the others', { err: error });
  }

  function isDead({ place: otherPlace, pid, age_ms }: SeenInstance): boolean {
    if (otherPlace === place && !isRunning(pid)) return true;
    return age_ms > silence_limit_ms && performance.now() - in_touch_since > silence_limit_ms;
  }

  /** Looks at the other instances. @returns whether all of them know this one */
  async function look(): Promise<boolean> {
    const others = (await findBrokers(db)).filter(({ _id }) => _id !== id);
    const dead = others.filter(isDead);
    const alive = others.filter((other) => !dead.includes(other));
    live = new Set(alive.map(({ _id }) => _id));
    for (const { _id } of dead) {
      warn('MQTT instance has died; its sessions are taken over', { instance: _id });
      await events.takeOver(_id);
      await removeBroker(db, _id);
    }
    if (alive.length > 0) await startFollowing();
    if ([...live].some((other) => !known.has(other))) {
      const found = live;
      await events.storeClients();
      known = found;
      await reportLife(db, id, [...known]);
    }
    news.emit('change');
    return alive.every(({ knows }) => knows.includes(id));
  }

  async function join(): Promise<void> {
    await joinBrokers(db, { _id: id, place, pid: process.pid });
    const begun = performance.now();
    while (!(await look()) && performance.now() - begun < join_limit_ms && !stopped.signal.aborted)
      await pause(join_poll_ms);
    hasJoined = true;
    news.emit('change');
  }

  async function startOver(reason: string): Promise<void> {
    warn('MQTT broker starts over', { reason });
    hasJoined = false;
    const former = id;
    id = randomUUID();
    known = new Set();
    await events.startOver();
    await removeBroker(db, former);
  }

  async function run(): Promise<void> {
    while (!stopped.signal.aborted) {
      try {
        if (!hasJoined) await join();
        else if (await reportLife(db, id, [...known])) await look();
        else await startOver('other instances have declared it dead');
        const now = performance.now();
        if (now - seen_at > silence_limit_ms / 2) in_touch_since = now;
        seen_at = now;
      } catch (error) {
        in_touch_since = performance.now();
        reportLostTouch(error);
      }
      await pause(hasJoined ? beat_ms : join_poll_ms);
    }
  }

  async function startFollowing(): Promise<void> {
    if (following !== undefined) return;
    const stream = await openStateChanges(db, id);
    following = awaitLater(follow(stream, id));
  }

  async function follow(first: Awaited<ReturnType<typeof openStateChanges>>, instance: string): Promise<void> {
    let stream = first;
    let resumeToken: ResumeToken | undefined;
    const closeStream = () => void stream.close().catch(() => undefined);
    stopped.signal.addEventListener('abort', closeStream);
    while (!stopped.signal.aborted && instance === id) {
      try {
        const batch = await stream.next();
        await applyAll(batch.changes);
        resumeToken = batch.resumeToken;
      } catch (error) {
        if (stopped.signal.aborted) break;
        warn('MQTT changes of other instances are interrupted', { err: error });
        await stream.close().catch(() => undefined);
        await pause(retry_ms);
        const reopened = await openStateChanges(db, id, resumeToken).catch(() => undefined);
        if (reopened !== undefined) stream = reopened;
        else if (!stopped.signal.aborted && performance.now() - seen_at < beat_ms) {
          // the database answers, but no longer has the changes
          await startOver('changes of other instances were missed').catch(reportLostTouch);
        }
      }
    }
    stopped.signal.removeEventListener('abort', closeStream);
    await stream.close().catch(() => undefined);
    following = undefined;
  }

  async function applyAll(changes: readonly Uint8Array[]): Promise<void> {
    let hasPings = false;
    for (const bson of changes) {
      const change = parseStateChange(bson);
      if (change === undefined) continue;
      if (change.kind === 'ping') {
        if (change.instance === id) continue;
        readPings.set(change.instance, Math.max(change.ping, readPings.get(change.instance) ?? 0));
        hasPings = true;
      } else if (change.kind === 'answers') {
        answers.set(change.instance, change.answers[id] ?? 0);
      } else {
        await events.apply(change).catch((error: unknown) => warn('MQTT change was not applied', { err: error }));
      }
    }
    if (hasPings) await writeAnswers(db, id, readPings);
    news.emit('change');
  }

  /** Waits until `condition` holds, which is checked after every change of the others, or for `limit_ms`. */
  async function waitFor(condition: () => boolean, limit_ms: number): Promise<void> {
    const waitForNews = async (signal: AbortSignal) => {
      while (!condition()) await once(news, 'change', { signal });
    };
    await runWithTimeLimit(limit_ms, undefined, waitForNews).catch(() => undefined);
  }

  async function sendPing(): Promise<number> {
    await sleep(ping_delay_ms);
    nextPing = undefined;
    const own = ++ping;
    await writePing(db, id, own);
    return own;
  }

  const running = awaitLater(run());
  return {
    /** The id of this instance. */
    get id(): string {
      return id;
    },
    /** No other instance is alive. */
    isAlone: () => live.size === 0,
    isLive: (instance: string | null) => instance === id || (instance !== null && live.has(instance)),
    /** Reports whether it is another instance, and alive. */
    isElsewhere: (instance: string | null) => instance !== null && live.has(instance),
    /** Waits until all others have read what this instance has written so far. @returns false after 2 s */
    async waitUntilRead(): Promise<boolean> {
      if (live.size === 0) return true;
      nextPing ??= awaitLater(sendPing());
      const own = await nextPing;
      const isRead = () => [...live].every((other) => (answers.get(other) ?? 0) >= own);
      await waitFor(isRead, read_limit_ms);
      return isRead();
    },
    /** Waits until the others know this instance: clients may log in. Rejects when the broker stops. */
    async waitUntilJoined(): Promise<void> {
      if (!hasJoined) await waitFor(() => hasJoined || stopped.signal.aborted, join_limit_ms + read_limit_ms);
      if (!hasJoined) throw new Error('the broker has not joined the others');
    },
    /** Ends the registration; `release` takes back what the database has of this instance. */
    async close(release: () => Promise<void>): Promise<void> {
      stopped.abort();
      news.emit('change');
      await running;
      await following;
      await release();
      await removeBroker(db, id);
    },
  };
}

/**
 * Names the process table that this process sees, so that processes find out whether others run. Neither part is enough:
 * hosts outside containers share the id of the namespace, containers of one host its boot id, and host names repeat.
 */
export function readPlace(proc = '/proc'): string {
  try {
    const boot_id = readFileSync(`${proc}/sys/kernel/random/boot_id`, 'latin1').trim();
    return `${boot_id} ${readlinkSync(`${proc}/self/ns/pid`)}`;
  } catch {
    return randomUUID();
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
