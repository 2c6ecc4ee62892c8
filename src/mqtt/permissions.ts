import { createHash } from 'node:crypto';
import type { MqttDevice } from '../repositories/mqtt-credentials.js';
import { isTopicFilter } from '../resources/mqtt.js';
import { covers, encodeId, isTopicName, parseStreamTopic, topicsOf } from './topics.js';

const longest_filter_bytes = 1024;

/** What a connection may do, as the database had it a moment ago. */
export type Rights =
  | { kind: 'device'; device: string; hash: string; filters: readonly string[] }
  | { kind: 'key'; digest: string };

export function rightsOfDevice({ device, hash, topics }: MqttDevice): Rights {
  return { kind: 'device', device, hash, filters: [...topicsOf(device), ...topics] };
}

/** Of the key only a digest is kept: it must not show up anywhere (contract 9). */
export function rightsOfKey(key: string): Rights {
  return { kind: 'key', digest: digestOf(encodeId(key)) };
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Its own streams and status, and what its topics cover; with a key, streams and status under the key. */
export function mayPublish(rights: Rights, topic: string): boolean {
  if (!isTopicName(topic)) return false;
  if (rights.kind === 'device') return mayReceive(rights, topic);
  const named = parseStreamTopic(topic);
  return named !== undefined && digestOf(named.first) === rights.digest;
}

/** Whether messages of a topic may reach this connection. */
export function mayReceive(rights: Rights, topic: string): boolean {
  return rights.kind === 'device' && rights.filters.some((filter) => covers(filter, topic));
}

/** A subscription must be wholly covered by one filter. Shared ones begin with `$`, too. */
export function maySubscribe(rights: Rights, filter: string): boolean {
  if (filter.startsWith('$') || !isTopicFilter(filter, longest_filter_bytes)) return false;
  return mayReceive(rights, filter);
}
