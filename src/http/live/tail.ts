import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { ChangeHistoryLost } from '../../db/change-stream.js';
import type { Log } from '../../db/database.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { groupBy } from '../../lib/group-by.js';
import { awaitLater } from '../../lib/promises.js';

/** An entry of a feed, which all its readers share. */
export interface FeedEntry {
  /** Ids are text in the order of the entries. */
  id: string;
  account: string;
  /** Bytes as stored. */
  size_bytes: number;
  /** The entry as a server-sent event, built by the first call. */
  frame(): Buffer;
}

/** A place between two entries. */
export interface FeedPosition {
  /** The id of the last entry before it; a text below all ids if there is none. */
  id: string;
  /** Sorts like the position. */
  token: string;
}

export interface TailSubscriber<Entry> {
  account: string;
  /** Entries are to be prepared for it. */
  needsPreparation: boolean;
  receive(entries: readonly Entry[]): void;
  /** Entries after the position may be missing: the reader has to end. */
  lose(): void;
}

/** Reads the entries of all accounts. */
export interface TailReader<Entry> {
  /** The position behind what has been read. */
  readonly position: FeedPosition;
  /** @throws ChangeHistoryLost; after any error another reader continues at `position` */
  next(): Promise<readonly Entry[]>;
  close(): Promise<void>;
}

/** Reads new entries once per process, while there are subscribers, and hands them to all. */
export interface Tail<Entry> {
  /** Hands over all entries behind the position that `position` has once this has resolved. */
  subscribe(subscriber: TailSubscriber<Entry>): Promise<void>;
  unsubscribe(subscriber: TailSubscriber<Entry>): void;
  /** The position behind what was read, which is handed over already or just now. */
  position(): FeedPosition;
  /** The id of the last entry that was handed over to all subscribers. */
  handedOverId(): string;
  close(): Promise<void>;
}

interface TailOptions<Entry> {
  /** Opens a reader at a position; default: now. */
  open(from?: FeedPosition): Promise<TailReader<Entry>>;
  /** Completes entries for subscribers that need it. @returns undefined if there is nothing to do */
  prepare?(entries: readonly Entry[], needsPreparation: (account: string) => boolean): Promise<void> | undefined;
  log: Log;
}

/** Entries and bytes handed over in one turn of the event loop: readers can write them before more follow. */
const slice_length = 100;
const slice_bytes = 256 * 1024;
const retry_ms = 500;

/** Creates the tail of one kind of feed. */
export function createTail<Entry extends FeedEntry>({ open, prepare, log }: TailOptions<Entry>): Tail<Entry> {
  const subscribers = new Map<string, Set<TailSubscriber<Entry>>>();
  const closed = new AbortController();
  let reader: TailReader<Entry> | undefined;
  let opening: Promise<void> | undefined;
  let running: Promise<void> | undefined;
  let position: FeedPosition = { id: '', token: '' };
  let handed_over_id = '';

  const isWanted = () => subscribers.size > 0 && !closed.signal.aborted;
  const needsPreparation = (account: string) =>
    [...(subscribers.get(account) ?? [])].some((subscriber) => subscriber.needsPreparation);

  async function start(): Promise<void> {
    await running;
    reader = await open();
    position = reader.position;
    handed_over_id = position.id;
    running = awaitLater(run(reader));
  }

  async function run(first: TailReader<Entry>): Promise<void> {
    let current = first;
    let isFailing = false;
    while (isWanted()) {
      try {
        const entries = await current.next();
        for (let work = awaitLater(prepare?.(entries, needsPreparation)); work !== undefined; ) {
          await work;
          work = awaitLater(prepare?.(entries, needsPreparation));
        }
        isFailing = false;
        position = current.position;
        await handOver(entries);
      } catch (error) {
        if (closed.signal.aborted) break;
        if (error instanceof ChangeHistoryLost) {
          log.warn({ err: error }, 'live feeds end: the log of changes was lost');
          for (const subscriber of [...subscribers.values()].flatMap((set) => [...set])) subscriber.lose();
          break;
        }
        if (!isFailing) log.warn({ err: error }, 'live feeds are interrupted; retrying');
        isFailing = true;
        current = await reopen(current);
      }
    }
    // no pause between the last look at the subscribers and this
    opening = undefined;
    await current.close().catch(() => undefined);
  }

  async function reopen(failed: TailReader<Entry>): Promise<TailReader<Entry>> {
    await failed.close().catch(() => undefined);
    await sleep(retry_ms, undefined, { signal: closed.signal }).catch(() => undefined);
    reader = await open(position).catch((error: unknown) => ({
      position,
      next: () => Promise.reject(error),
      close: async () => undefined,
    }));
    return reader;
  }

  async function handOver(entries: readonly Entry[]): Promise<void> {
    for (const slice of splitIntoBatches(entries, slice_length, (entry) => entry.size_bytes, slice_bytes)) {
      for (const [account, ofAccount] of groupBy(slice, (entry) => entry.account))
        for (const subscriber of subscribers.get(account) ?? []) subscriber.receive(ofAccount);
      await nextTurn();
    }
    handed_over_id = position.id;
  }

  return {
    async subscribe(subscriber) {
      const { account } = subscriber;
      subscribers.set(account, (subscribers.get(account) ?? new Set()).add(subscriber));
      opening ??= awaitLater(start());
      const awaited = opening;
      try {
        await awaited;
      } catch (error) {
        this.unsubscribe(subscriber);
        if (opening === awaited) opening = undefined;
        throw error;
      }
    },
    unsubscribe(subscriber) {
      const ofAccount = subscribers.get(subscriber.account);
      ofAccount?.delete(subscriber);
      if (ofAccount?.size === 0) subscribers.delete(subscriber.account);
    },
    position: () => position,
    handedOverId: () => handed_over_id,
    async close() {
      closed.abort();
      await opening?.catch(() => undefined);
      await reader?.close();
      await running;
    },
  };
}
