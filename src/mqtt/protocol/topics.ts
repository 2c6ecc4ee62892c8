import { decodePercent } from '../../lib/percent-decoding.js';
import { max_levels } from '../../resources/mqtt.js';
import type { StreamKind } from '../../resources/stream.js';

/** Percent-encodes the characters of an id_developer that have a meaning in topics (reference/mqtt.md#topic-names). */
export function encodeId(id: string): string {
  return id.replaceAll(/^\$|[%/+#]/g, encodeURIComponent);
}

function decodeId(encoded: string): string | undefined {
  const id = decodePercent(encoded);
  return id !== undefined && encodeId(id) === encoded ? id : undefined;
}

const endings: ReadonlyMap<string, StreamKind> = new Map([
  ['streams', 'str'],
  ['status', 'sta'],
]);

/** Endings of the topics of a device's state and commands; the service alone publishes to the first two. */
const channels = ['state/desired', 'commands', 'state/reported', 'commands/result'] as const;
export type DeviceChannel = (typeof channels)[number];
const serviceChannels: ReadonlySet<DeviceChannel> = new Set(['state/desired', 'commands']);

const ownEndings: ReadonlySet<string> = new Set([...endings.keys(), ...channels]);

/** The topics of a device. */
export function topicsOf(device: string): string[] {
  return [...ownEndings].map((ending) => `${encodeId(device)}/${ending}`);
}

/** Reports whether a topic is one of those of the device. */
export function isTopicOf(device: string, topic: string): boolean {
  const first = `${encodeId(device)}/`;
  return topic.startsWith(first) && ownEndings.has(topic.slice(first.length));
}

/** The topic of one channel of a device. */
export function formatDeviceTopic(device: string, channel: DeviceChannel): string {
  return `${encodeId(device)}/${channel}`;
}

/** @returns undefined for every topic but those of the state and the commands of a device */
export function parseDeviceTopic(topic: string): { device: string; channel: DeviceChannel } | undefined {
  const at = topic.indexOf('/');
  const ending = topic.slice(at + 1);
  const channel = channels.find((each) => each === ending);
  if (at < 0 || channel === undefined) return undefined;
  const device = decodeId(topic.slice(0, at));
  return device?.includes('@') ? { device, channel } : undefined;
}

/** Finds the device whose topic it is. @returns undefined for every topic but those of a device */
export function findDeviceOf(topic: string): string | undefined {
  return (parseStreamTopic(topic) ?? parseDeviceTopic(topic))?.device;
}

/** Reports whether only the service publishes to a topic. */
export function isServiceTopic(topic: string): boolean {
  const { channel } = parseDeviceTopic(topic) ?? {};
  return channel !== undefined && serviceChannels.has(channel);
}

/** The topic to which a device publishes streams of one kind: `{encoded id}/streams` or `{encoded id}/status`. */
export function formatStreamTopic(device: string, _t: StreamKind): string {
  return `${encodeId(device)}/${_t === 'str' ? 'streams' : 'status'}`;
}

/** A parsed `…/streams` or `…/status` topic. `device` is undefined if the first level is no encoded id. */
export interface StreamTopic {
  first: string;
  device: string | undefined;
  _t: StreamKind;
}

/** @returns undefined for other topics. @param isOfKey the first level may be an API key */
export function parseStreamTopic(topic: string, isOfKey = false): StreamTopic | undefined {
  const at = topic.indexOf('/');
  const _t = at < 0 ? undefined : endings.get(topic.slice(at + 1));
  const first = topic.slice(0, at);
  // without @ it is no identifier: `homeassistant/status` is a topic like any other
  if (_t === undefined || !(isOfKey || /@|%40/.test(first))) return undefined;
  return { first, device: decodeId(first), _t };
}

/** Reports whether a message may have this topic: not empty, no wildcards, not too many levels (MQTT 3.1.1 §4.7). */
export function isTopic(topic: string): boolean {
  return topic !== '' && !/[+#\0]/.test(topic) && !hasTooManyLevels(topic);
}

/** Reports whether a topic has more levels than MQTT clients may use (reference/limits.md#values). */
export function hasTooManyLevels(topic: string): boolean {
  return topic.split('/', max_levels + 1).length > max_levels;
}

/** Reports whether a client may publish to this topic; topics with `$` are reserved for the broker (reference/mqtt.md#topic-names). */
export function isTopicName(topic: string): boolean {
  return isTopic(topic) && !topic.startsWith('$');
}

/** A topic or filter split at `/`. Filters are matched often, so they are split once. */
export type TopicLevels = readonly string[];

/**
 * Reports whether `wide` matches every topic that `narrow` matches. A topic is a filter without wildcards, so this also
 * matches topics. Both must be valid filters that do not begin with `$`.
 */
export function isCovering(wide: TopicLevels, narrow: TopicLevels): boolean {
  // `#` equals `+/#`: every topic has a first level
  if (narrow.length === 1 && narrow[0] === '#') return wide[0] === '#' || isCovering(wide, ['+', '#']);
  for (let index = 0; index < wide.length; index++) {
    const level = wide[index];
    if (level === '#') return true;
    const other = narrow[index];
    if (other === undefined || other === '#') return false;
    if (level !== '+' && level !== other) return false;
  }
  return narrow.length === wide.length;
}

const sharedForm = /^\$share\/[^/+#]+\/(.+)$/s;

/** Returns the filter of a shared subscription, `$share/{group}/{filter}`; undefined for others. */
export function findSharedFilter(name: string): string | undefined {
  return sharedForm.exec(name)?.[1];
}
