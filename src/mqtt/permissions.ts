import { createHash } from 'node:crypto';
import type { MqttDevice } from '../repositories/mqtt-credentials.js';
import { isTopicFilter } from '../resources/mqtt.js';
import { covers, encodeId, isTopicName, parseStreamTopic, topicsOf } from './topics.js';

const max_filter_bytes = 1024;

/** What a connection may do, as the database had it a moment ago. */
export type Permissions =
  | { kind: 'device'; device: string; hash: string; filters: readonly string[] }
  | { kind: 'key'; digest: string };

export function devicePermissions({ device, hash, topics }: MqttDevice): Permissions {
  return { kind: 'device', device, hash, filters: [...topicsOf(device), ...topics] };
}

/** Of the key only a digest is kept: it must not show up anywhere (contract 9). */
export function keyPermissions(key: string): Permissions {
  return { kind: 'key', digest: digestOf(encodeId(key)) };
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Its own streams and status, and what its topics cover; with a key, streams and status under the key. */
export function mayPublish(permissions: Permissions, topic: string): boolean {
  if (!isTopicName(topic)) return false;
  if (permissions.kind === 'device') return mayReceive(permissions, topic);
  const named = parseStreamTopic(topic);
  return named !== undefined && digestOf(named.first) === permissions.digest;
}

/** Whether messages of a topic may reach this connection. */
export function mayReceive(permissions: Permissions, topic: string): boolean {
  return permissions.kind === 'device' && permissions.filters.some((filter) => covers(filter, topic));
}

/** A subscription must be wholly covered by one filter. Shared ones begin with `$`, too. */
export function maySubscribe(permissions: Permissions, filter: string): boolean {
  if (filter.startsWith('$') || !isTopicFilter(filter, max_filter_bytes)) return false;
  return mayReceive(permissions, filter);
}
