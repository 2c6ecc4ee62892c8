import { setImmediate as nextTurn } from 'node:timers/promises';
import type { StoredNode } from '../../db/batching/loader.js';
import type { Id } from '../../db/ids.js';
import { readInBatches } from '../../lib/batches.js';
import { coalesce } from '../../lib/coalesce.js';
import { findDeviceOf, isCovering, type TopicLevels } from '../protocol/topics.js';
import { isExpired } from '../store/messages.js';
import type { RetainedMessage } from '../store/retained.js';

const max_retained = 10_000;
const max_retained_bytes = 16 * 1024 * 1024;
/** Matches between two turns of the event loop. */
const batch_size = 1000;
const devices_at_once = 100;
const eviction_period_ms = 5000;

interface KnownMessage {
  message: RetainedMessage;
  levels: TopicLevels;
}

interface Deps {
  write(message: RetainedMessage): Promise<void>;
  findDevice(id: string): Promise<StoredNode | undefined>;
  /** Epoch milliseconds. */
  now(): number;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

const isDeletion = ({ payload }: RetainedMessage) => payload.length === 0;
const bytesOf = ({ topic, payload, properties }: RetainedMessage) =>
  payload.length + topic.length + (properties?.length ?? 0);

/** Loads the messages of an account. @throws what `stored` throws */
export async function openRetainedMessages(
  stored: AsyncIterable<RetainedMessage>,
  deps: Deps,
): Promise<RetainedMessages> {
  const retained = new RetainedMessages(deps);
  for await (const message of stored) retained.apply(message);
  return retained;
}

/** The retained messages of an account, at most 10,000 of 16 MiB in all. They are in the database, too. */
export class RetainedMessages {
  private readonly messages = new Map<string, KnownMessage>();
  /** Messages, those being written included. */
  private total = 0;
  private total_bytes = 0;
  private evicted_at = Number.NEGATIVE_INFINITY;
  private readonly evictOrphans = coalesce(() => this.evictAll());

  constructor(private readonly deps: Deps) {}

  /** Stores a message for its topic, or deletes it with an empty payload. @returns false if there is no room */
  async store(message: RetainedMessage): Promise<boolean> {
    const { write } = this.deps;
    if (isDeletion(message)) {
      // an earlier write of the topic may be in progress
      await write(message);
      this.apply(message);
      return true;
    }
    if (!this.hasRoom(message)) await this.evictOrphans();
    if (!this.hasRoom(message)) return false;
    const [more, more_bytes] = this.growthOf(message);
    this.grow(more, more_bytes);
    try {
      await write(message);
    } finally {
      this.grow(-more, -more_bytes);
    }
    this.apply(message);
    return true;
  }

  /** Finds the internal id of the device of a topic: undefined for other topics, null if the device is deleted. */
  async findParent(topic: string): Promise<Id | null | undefined> {
    const id = findDeviceOf(topic);
    if (id === undefined) return undefined;
    return (await this.deps.findDevice(id))?._id ?? null;
  }

  /** Takes over a message that another instance has stored, or deletes it with an empty payload. */
  apply(message: RetainedMessage): void {
    const { topic } = message;
    this.grow(...this.growthOf(message));
    if (isDeletion(message)) this.messages.delete(topic);
    else this.messages.set(topic, { message, levels: topic.split('/') });
  }

  /** Yields each message that a filter matches once, but none of a deleted device; pauses between batches. */
  async *find(filters: readonly string[]): AsyncIterable<RetainedMessage> {
    for await (const { others } of this.findOrphans(this.match(filters))) yield* others;
  }

  /** The messages and bytes that a message adds, or takes if it deletes another one. */
  private growthOf(message: RetainedMessage): [number, number] {
    const previous = this.messages.get(message.topic)?.message;
    const [count, bytes] = isDeletion(message) ? [0, 0] : [1, bytesOf(message)];
    return previous === undefined ? [count, bytes] : [count - 1, bytes - bytesOf(previous)];
  }

  private grow(more: number, more_bytes: number): void {
    this.total += more;
    this.total_bytes += more_bytes;
  }

  private hasRoom(message: RetainedMessage): boolean {
    const [more, more_bytes] = this.growthOf(message);
    return this.total_bytes + more_bytes <= max_retained_bytes && this.total + more <= max_retained;
  }

  private async *scan(filters: readonly TopicLevels[]): AsyncIterable<RetainedMessage> {
    let matches = 0;
    for (const { message, levels } of this.messages.values()) {
      matches += filters.length;
      if (matches > batch_size) {
        matches = 0;
        await nextTurn();
      }
      if (filters.some((filter) => isCovering(filter, levels))) yield message;
    }
  }

  private async *match(filters: readonly string[]): AsyncIterable<RetainedMessage> {
    const exact = new Set(filters.filter((filter) => !/[+#]/.test(filter)));
    const wildcards = filters.filter((filter) => !exact.has(filter)).map((filter) => filter.split('/'));
    for (const topic of exact) {
      const known = this.messages.get(topic);
      if (known !== undefined) yield known.message;
    }
    if (wildcards.length === 0) return;
    for await (const message of this.scan(wildcards)) if (!exact.has(message.topic)) yield message;
  }

  /** Separates the messages that are expired, or of deleted devices; skips a batch if the database fails. */
  private async *findOrphans(found: AsyncIterable<RetainedMessage>) {
    const { now, failed } = this.deps;
    const findParents = (batch: readonly RetainedMessage[]) =>
      Promise.all(batch.map(({ topic, parent }) => parent && this.findParent(topic)));
    for await (const batch of readInBatches(found, devices_at_once)) {
      const parents = await findParents(batch).catch(failed);
      if (parents === undefined) continue;
      const isOrphan = (message: RetainedMessage, index: number) =>
        isExpired(message, now()) || `${parents[index]}` !== `${message.parent}`;
      yield { orphans: batch.filter(isOrphan), others: batch.filter((message, index) => !isOrphan(message, index)) };
    }
  }

  /** Forgets expired messages and those of deleted devices, which the database has lost with them. */
  private async evictAll(): Promise<void> {
    if (performance.now() - this.evicted_at < eviction_period_ms) return;
    this.evicted_at = performance.now();
    for await (const { orphans } of this.findOrphans(this.scan([['#']])))
      for (const orphan of orphans)
        if (this.messages.get(orphan.topic)?.message === orphan) this.apply({ ...orphan, payload: Buffer.alloc(0) });
  }
}
