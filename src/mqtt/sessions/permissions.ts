import { createHash } from 'node:crypto';
import type { KeyLimit } from '../../db/reach.js';
import { isTopicFilter } from '../../resources/mqtt.js';
import {
  encodeId,
  findSharedFilter,
  isCovering,
  isServiceTopic,
  isTopicName,
  isTopicOf,
  parseStreamTopic,
  type TopicLevels,
} from '../protocol/topics.js';
import type { MqttDevice } from '../store/credentials.js';

const max_filter_bytes = 1024;

/** Permissions of a connection, read from the database at the login or the last recheck. */
export type TopicPermissions =
  | {
      kind: 'device';
      device: string;
      /** Internal id of the device. */
      parent: string;
      hash: string;
      /** Granted topics. */
      filters: readonly TopicLevels[];
    }
  | { kind: 'key'; digest: string; limit: KeyLimit | undefined };

/** The account, the owner and the permissions of a login. */
export interface LoggedIn {
  account: string;
  /** The credentials, the certificate or the API key. */
  owner: string;
  permissions: TopicPermissions;
}

/** Permissions of a device: its own topics, and those granted to it. */
export function createDevicePermissions({ device, parent, hash, topics = [] }: MqttDevice): TopicPermissions {
  return { kind: 'device', device, parent, hash, filters: topics.map((filter) => filter.split('/')) };
}

/** Applies a device that was read again; topics that have not changed are not split again. */
export function refreshPermissions(permissions: TopicPermissions, device: MqttDevice): TopicPermissions {
  if (device.topics !== undefined) return createDevicePermissions(device);
  return permissions.kind === 'device' ? { ...permissions, hash: device.hash } : permissions;
}

/** Keeps only a digest of the key, which must not appear anywhere (reference/mqtt.md#api-key-login). */
export function createKeyPermissions(key: string, limit: KeyLimit | undefined): TopicPermissions {
  return { kind: 'key', digest: digestOf(encodeId(key)), limit };
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Allows a device its own topics and those granted to it, and a key the streams and status under the key. */
export function canPublish(permissions: TopicPermissions, topic: string): boolean {
  if (!isTopicName(topic) || isServiceTopic(topic)) return false;
  if (permissions.kind === 'device') return canReceive(permissions, topic);
  const streamTopic = parseStreamTopic(topic, true);
  return streamTopic !== undefined && isKeyLevel(permissions, streamTopic.first);
}

/** Reports whether the first level of a topic is the key of the login. */
export function isKeyLevel(permissions: TopicPermissions, first: string): boolean {
  return permissions.kind === 'key' && digestOf(first) === permissions.digest;
}

/** Allows the device's own topics, and those that one of its filters covers. */
export function canReceive(permissions: TopicPermissions, topic: string): boolean {
  if (permissions.kind !== 'device') return false;
  if (isTopicOf(permissions.device, topic)) return true;
  const levels = topic.split('/');
  return permissions.filters.some((filter) => isCovering(filter, levels));
}

/** Reports whether a text is a topic filter of a length that is served; one that is shared names its group. */
export function isFilter(text: string): boolean {
  return isTopicFilter(text, max_filter_bytes) && (!text.startsWith('$share/') || findSharedFilter(text) !== undefined);
}

/** Allows a filter that one of the device's filters covers completely; `$` also refuses shared subscriptions. */
export function canSubscribe(permissions: TopicPermissions, filter: string): boolean {
  const own = findSharedFilter(filter) ?? filter;
  if (own.startsWith('$') || !isFilter(own)) return false;
  return canReceive(permissions, own);
}
