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
export class Peers {
  private readonly stopped = new AbortController();
  private readonly place = readPlace();
  private ownId = randomUUID() as string;
  private live: ReadonlySet<string> = new Set();
  private known: ReadonlySet<string> = new Set();
  private hasJoined = false;
  /** When this instance began to reach the database without a break: before, the silence of others means nothing. */
  private in_touch_since = performance.now();
  private seen_at = performance.now();
  private following: Promise<void> | undefined;
  private ping = 0;
  private nextPing: Promise<number> | undefined;
  /** Latest pings of others that were read here, and of this instance that others have read. */
  private readonly readPings = new Map<string, number>();
  private readonly answers = new Map<string, number>();
  /** Emits `change` whenever something that others wait for may have changed. */
  private readonly news = new EventEmitter().setMaxListeners(0);
  private readonly running: Promise<void>;

  /** Registers this instance, and follows the others while there are any. */
  constructor(
    private readonly db: Database,
    private readonly warn: LogLine,
    private readonly events: PeerEvents,
  ) {
    this.running = awaitLater(this.run());
  }

  /** The id of this instance. */
  get id(): string {
    return this.ownId;
  }

  /** No other instance is alive. */
  isAlone(): boolean {
    return this.live.size === 0;
  }

  isLive(instance: string | null): boolean {
    return instance === this.id || this.isElsewhere(instance);
  }

  /** Reports whether it is another instance, and alive. */
  isElsewhere(instance: string | null): boolean {
    return instance !== null && this.live.has(instance);
  }

  /** Waits until all others have read what this instance has written so far. @returns false after 2 s */
  async waitUntilRead(): Promise<boolean> {
    if (this.isAlone()) return true;
    this.nextPing ??= awaitLater(this.sendPing());
    const own = await this.nextPing;
    const isRead = () => [...this.live].every((other) => (this.answers.get(other) ?? 0) >= own);
    await this.waitFor(isRead, read_limit_ms);
    return isRead();
  }

  /** Waits until the others know this instance: clients may log in. Rejects when the broker stops. */
  async waitUntilJoined(): Promise<void> {
    const isOver = () => this.hasJoined || this.stopped.signal.aborted;
    if (!this.hasJoined) await this.waitFor(isOver, join_limit_ms + read_limit_ms);
    if (!this.hasJoined) throw new Error('the broker has not joined the others');
  }

  /** Ends the registration; `release` takes back what the database has of this instance. */
  async close(release: () => Promise<void>): Promise<void> {
    this.stopped.abort();
    this.news.emit('change');
    await this.running;
    await this.following;
    await release();
    await removeBroker(this.db, this.id);
  }

  private reportLostTouch(error: unknown): void {
    // at the start the database may still be upgraded, and is reported by itself
    if (this.hasJoined) this.warn('MQTT broker has lost touch with the others', { err: error });
  }

  private isDead({ place: otherPlace, pid, age_ms }: SeenInstance): boolean {
    if (otherPlace === this.place && !isRunning(pid)) return true;
    return age_ms > silence_limit_ms && performance.now() - this.in_touch_since > silence_limit_ms;
  }

  /** Looks at the other instances. @returns whether all of them know this one */
  private async look(): Promise<boolean> {
    const others = (await findBrokers(this.db)).filter(({ _id }) => _id !== this.id);
    const dead = others.filter((other) => this.isDead(other));
    const alive = others.filter((other) => !dead.includes(other));
    this.live = new Set(alive.map(({ _id }) => _id));
    for (const { _id } of dead) {
      this.warn('MQTT instance has died; its sessions are taken over', { instance: _id });
      await this.events.takeOver(_id);
      await removeBroker(this.db, _id);
    }
    if (alive.length > 0) await this.startFollowing();
    if ([...this.live].some((other) => !this.known.has(other))) {
      const found = this.live;
      await this.events.storeClients();
      this.known = found;
      await reportLife(this.db, this.id, [...this.known]);
    }
    this.news.emit('change');
    return alive.every(({ knows }) => knows.includes(this.id));
  }

  private async join(): Promise<void> {
    await joinBrokers(this.db, { _id: this.id, place: this.place, pid: process.pid });
    const begun = performance.now();
    while (!(await this.look()) && performance.now() - begun < join_limit_ms && !this.stopped.signal.aborted)
      await this.pause(join_poll_ms);
    this.hasJoined = true;
    this.news.emit('change');
  }

  private async startOver(reason: string): Promise<void> {
    this.warn('MQTT broker starts over', { reason });
    this.hasJoined = false;
    const former = this.id;
    this.ownId = randomUUID();
    this.known = new Set();
    await this.events.startOver();
    await removeBroker(this.db, former);
  }

  private async run(): Promise<void> {
    while (!this.stopped.signal.aborted) {
      try {
        if (!this.hasJoined) await this.join();
        else if (await reportLife(this.db, this.id, [...this.known])) await this.look();
        else await this.startOver('other instances have declared it dead');
        const now = performance.now();
        if (now - this.seen_at > silence_limit_ms / 2) this.in_touch_since = now;
        this.seen_at = now;
      } catch (error) {
        this.in_touch_since = performance.now();
        this.reportLostTouch(error);
      }
      await this.pause(this.hasJoined ? beat_ms : join_poll_ms);
    }
  }

  private async startFollowing(): Promise<void> {
    if (this.following !== undefined) return;
    const stream = await openStateChanges(this.db, this.id);
    this.following = awaitLater(this.follow(stream, this.id));
  }

  private async follow(first: Awaited<ReturnType<typeof openStateChanges>>, instance: string): Promise<void> {
    let stream = first;
    let resumeToken: ResumeToken | undefined;
    const closeStream = () => void stream.close().catch(() => undefined);
    this.stopped.signal.addEventListener('abort', closeStream);
    while (!this.stopped.signal.aborted && instance === this.id) {
      try {
        const batch = await stream.next();
        await this.applyAll(batch.changes);
        resumeToken = batch.resumeToken;
      } catch (error) {
        if (this.stopped.signal.aborted) break;
        this.warn('MQTT changes of other instances are interrupted', { err: error });
        await stream.close().catch(() => undefined);
        await this.pause(retry_ms);
        const reopened = await openStateChanges(this.db, this.id, resumeToken).catch(() => undefined);
        if (reopened !== undefined) stream = reopened;
        else if (!this.stopped.signal.aborted && performance.now() - this.seen_at < beat_ms) {
          // the database answers, but no longer has the changes
          await this.startOver('changes of other instances were missed').catch((lost: unknown) =>
            this.reportLostTouch(lost),
          );
        }
      }
    }
    this.stopped.signal.removeEventListener('abort', closeStream);
    await stream.close().catch(() => undefined);
    this.following = undefined;
  }

  private async applyAll(changes: readonly Uint8Array[]): Promise<void> {
    let hasPings = false;
    for (const bson of changes) {
      const change = parseStateChange(bson);
      if (change === undefined) continue;
      if (change.kind === 'ping') {
        if (change.instance === this.id) continue;
        this.readPings.set(change.instance, Math.max(change.ping, this.readPings.get(change.instance) ?? 0));
        hasPings = true;
      } else if (change.kind === 'answers') {
        this.answers.set(change.instance, change.answers[this.id] ?? 0);
      } else {
        await this.events
          .apply(change)
          .catch((error: unknown) => this.warn('MQTT change was not applied', { err: error }));
      }
    }
    if (hasPings) await writeAnswers(this.db, this.id, this.readPings);
    this.news.emit('change');
  }

  /** Waits until `condition` holds, which is checked after every change of the others, or for `limit_ms`. */
  private async waitFor(condition: () => boolean, limit_ms: number): Promise<void> {
    const waitForNews = async (signal: AbortSignal) => {
      while (!condition()) await once(this.news, 'change', { signal });
    };
    await runWithTimeLimit(limit_ms, undefined, waitForNews).catch(() => undefined);
  }

  private async sendPing(): Promise<number> {
    await sleep(ping_delay_ms);
    this.nextPing = undefined;
    const own = ++this.ping;
    await writePing(this.db, this.id, own);
    return own;
  }

  private pause(ms: number): Promise<unknown> {
    return sleep(ms, undefined, { signal: this.stopped.signal }).catch(() => undefined);
  }
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
