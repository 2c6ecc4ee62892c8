import { setImmediate as nextTurn } from 'node:timers/promises';
import type { PublishPacket } from 'aedes';
import { isCovering, type TopicLevels } from './topics.js';

const max_retained = 10_000;
const max_retained_bytes = 16 * 1024 * 1024;
/** Matches between two turns of the event loop. */
const batch_size = 1000;

interface RetainedMessage {
  packet: PublishPacket;
  levels: TopicLevels;
  bytes: number;
}

/** The retained messages of an account. */
export interface RetainedMessages {
  /** Stores a message for its topic, or deletes it with an empty payload. @returns false if there is no room */
  store(packet: PublishPacket): boolean;
  /** Yields each message that one of the filters matches once; pauses between batches. */
  find(filters: readonly string[]): AsyncIterable<PublishPacket>;
}

/** Creates an empty store of at most 10,000 messages and 16 MiB. */
export function createRetainedMessages(): RetainedMessages {
  const messages = new Map<string, RetainedMessage>();
  let total_bytes = 0;

  async function* scan(filters: readonly TopicLevels[]): AsyncIterable<PublishPacket> {
    let matches = 0;
    for (const { packet, levels } of messages.values()) {
      matches += filters.length;
      if (matches > batch_size) {
        matches = 0;
        await nextTurn();
      }
      if (filters.some((filter) => isCovering(filter, levels))) yield packet;
    }
  }

  return {
    store(packet) {
      const { topic, payload } = packet;
      const previous_bytes = messages.get(topic)?.bytes ?? 0;
      if (payload.length === 0) {
        messages.delete(topic);
        total_bytes -= previous_bytes;
        return true;
      }
      const bytes = payload.length + topic.length;
      const new_total = total_bytes - previous_bytes + bytes;
      if (new_total > max_retained_bytes || (previous_bytes === 0 && messages.size >= max_retained)) return false;
      messages.set(topic, { packet: { ...packet }, levels: topic.split('/'), bytes });
      total_bytes = new_total;
      return true;
    },
    async *find(filters) {
      const exact = new Set(filters.filter((filter) => !/[+#]/.test(filter)));
      const wildcards = filters.filter((filter) => !exact.has(filter)).map((filter) => filter.split('/'));
      for (const topic of exact) {
        const message = messages.get(topic);
        if (message !== undefined) yield message.packet;
      }
      if (wildcards.length === 0) return;
      for await (const packet of scan(wildcards)) if (!exact.has(packet.topic)) yield packet;
    },
  };
}
