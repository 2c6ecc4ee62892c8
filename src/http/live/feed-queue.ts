import type { FeedEntry } from './tail.js';

/** Entries that a reader may be behind (reference/events.md#live-feeds). */
const max_feed_entries = 1000;
const max_feed_bytes = 1024 * 1024;

/** The entries that a reader has not taken yet, bounded in number and bytes. */
export interface FeedQueue<Entry extends FeedEntry> {
  /** Drops everything, once and for all until `clear`, when a limit is exceeded. */
  push(entries: readonly Entry[]): void;
  shift(): Entry | undefined;
  readonly isOverflowed: boolean;
  /** Drops everything and takes entries again. */
  clear(): void;
}

/** Creates an empty queue. */
export function createFeedQueue<Entry extends FeedEntry>(): FeedQueue<Entry> {
  let entries: Entry[] = [];
  let size_bytes = 0;
  let isOverflowed = false;
  return {
    push(added) {
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
    shift() {
      const entry = entries.shift();
      if (entry !== undefined) size_bytes -= entry.frame().length;
      return entry;
    },
    get isOverflowed() {
      return isOverflowed;
    },
    clear() {
      entries = [];
      size_bytes = 0;
      isOverflowed = false;
    },
  };
}
