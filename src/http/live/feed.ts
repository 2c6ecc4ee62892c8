import { readInSlots } from '../../lib/read-in-slots.js';
import type { Shares } from '../../lib/shares.js';
import { createWakeUp } from '../../lib/wake-up.js';
import { formatHeartbeat, overflowFrame } from './frames.js';
import type { FeedEntry, FeedPosition, Tail, TailSubscriber } from './tail.js';

/** Entries that a reader may be behind (reference/events.md#live-feeds). */
const max_feed_entries = 1000;
const max_feed_bytes = 1024 * 1024;

/** Creates the queue of what a reader has not taken yet, bounded in number and bytes. */
function createFeedQueue<Entry extends FeedEntry>() {
  let entries: Entry[] = [];
  let size_bytes = 0;
  let isOverflowed = false;
  return {
    /** Drops everything, once and for all until `clear`, when a limit is exceeded. */
    push(added: readonly Entry[]): void {
      if (isOverflowed) return;
      for (const entry of added) {
        entries.push(entry);
        size_bytes += entry.frame().length;
        if (entries.length <= max_feed_entries && size_bytes <= max_feed_bytes) continue;
        this.clear();
        isOverflowed = true;
        return;
      }
    },
    shift(): Entry | undefined {
      const entry = entries.shift();
      if (entry !== undefined) size_bytes -= entry.frame().length;
      return entry;
    },
    get isOverflowed() {
      return isOverflowed;
    },
    /** Drops everything and takes entries again. */
    clear(): void {
      entries = [];
      size_bytes = 0;
      isOverflowed = false;
    },
  };
}

/** Reads the stored entries of one account, from a position on. */
export interface LogReader<Entry> {
  /** Yields entries in batches, at least up to `until`; a later call continues. */
  read(until: FeedPosition): AsyncIterable<readonly Entry[]>;
  close(): Promise<void>;
}

export interface FeedSource<Entry, Query> {
  tail: Tail<Entry>;
  /** An id behind all entries of changes that have been acknowledged. */
  findCurrentId(): Promise<string>;
  /** @throws AppError badParameter (4004) if the entries after `after` are not stored any more */
  openLog(query: Query, after: string): Promise<LogReader<Entry>>;
}

/** The entries that a reader wants. */
export interface FeedQuery<Entry> {
  account: string;
  needsPreparation: boolean;
  isWanted(entry: Entry): boolean;
  /** A further condition, which needs the database. */
  confirm?(entry: Entry): Promise<boolean>;
}

/** A connection to a reader. */
export interface FeedSink {
  /** @returns false if the reader takes no more for now: wait for `drained` */
  write(frame: Buffer): boolean;
  /** Resolves when more can be written, or when the reader has left. */
  drained(): Promise<void>;
}

export interface Feed {
  /** Sends what is stored and then what comes, until `ended` aborts or the reader is too far behind. */
  send(sink: FeedSink, ended: AbortSignal): Promise<'ended' | 'overflow'>;
  close(): Promise<void>;
}

const heartbeat_ms = 15_000;

/**
 * Opens a feed of the entries after `after`, by default of the changes acknowledged from now on. First it subscribes to
 * the tail; then it reads the log up to the position of the tail; so nothing is missing in between. Ids decide what is
 * sent already. @param costly shares in which the log is read
 */
export async function openFeed<Entry extends FeedEntry, Query extends FeedQuery<Entry>>(
  { tail, findCurrentId, openLog }: FeedSource<Entry, Query>,
  query: Query,
  after: string | undefined,
  costly: Shares,
): Promise<Feed> {
  const queue = createFeedQueue<Entry>();
  let isLost = false;
  const news = createWakeUp();
  const subscriber: TailSubscriber<Entry> = {
    account: query.account,
    needsPreparation: query.needsPreparation,
    receive(entries) {
      queue.push(entries.filter(query.isWanted));
      news.wake();
    },
    lose() {
      isLost = true;
      news.wake();
    },
  };
  await tail.subscribe(subscriber);
  let position = tail.position();
  let log: LogReader<Entry> | undefined;
  let last_id: string;
  try {
    last_id = after ?? (await findCurrentId());
    if (after !== undefined && after < position.id) log = await openLog(query, after);
  } catch (error) {
    tail.unsubscribe(subscriber);
    throw error;
  }

  async function send(sink: FeedSink, ended: AbortSignal): Promise<'ended' | 'overflow'> {
    const isEnded = () => ended.aborted || isLost;
    let isDrained = sink.write(formatHeartbeat(last_id));
    let isConfirming = false;
    const confirm = async (entry: Entry) => {
      if (query.confirm === undefined) return true;
      isConfirming = true;
      return costly.run(query.account, () => query.confirm?.(entry) ?? Promise.resolve(true), { signal: ended });
    };
    const sendEntry = async (entry: Entry) => {
      if (entry.id <= last_id || !(await confirm(entry))) return;
      isDrained = sink.write(entry.frame());
      last_id = entry.id;
      if (isDrained) return;
      await sink.drained();
      isDrained = true;
    };
    let isLive = log === undefined;
    const heartbeat = setInterval(() => {
      if (!isDrained) return;
      const handed_over_id = tail.handedOverId();
      sink.write(formatHeartbeat(isLive && !isConfirming && handed_over_id > last_id ? handed_over_id : last_id));
    }, heartbeat_ms);
    ended.addEventListener('abort', () => {
      news.wake();
      closeLog().catch(() => undefined);
    });
    try {
      while (!isLive && !isEnded()) {
        const stored = log && readInSlots(costly, query.account, log.read(position), { signal: ended });
        for await (const entries of stored ?? []) {
          for (const entry of entries) if (query.isWanted(entry) && !isEnded()) await sendEntry(entry);
          if (isEnded()) break;
        }
        isLive = !queue.isOverflowed;
        // what came while the log was read did not fit: it is in the log
        if (queue.isOverflowed) queue.clear();
        position = tail.position();
      }
      await closeLog();
      while (!isEnded()) {
        const entry = queue.shift();
        if (entry !== undefined) await sendEntry(entry);
        else if (queue.isOverflowed) break;
        else {
          isConfirming = false;
          await news.wait();
        }
      }
      if (!queue.isOverflowed || isEnded()) return 'ended';
      sink.write(overflowFrame);
      return 'overflow';
    } finally {
      clearInterval(heartbeat);
    }
  }

  async function closeLog(): Promise<void> {
    const closing = log;
    log = undefined;
    await closing?.close();
  }

  return {
    send,
    async close() {
      tail.unsubscribe(subscriber);
      await closeLog();
    },
  };
}
