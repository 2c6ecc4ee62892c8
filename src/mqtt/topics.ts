import type { StreamKind } from '../resources/stream.js';

/** An id_developer as it stands in a topic: what has a meaning there is percent-encoded (contract 9). */
export function encodeId(id: string): string {
  return id.replaceAll(/[%/+#]/g, (character) => encodeURIComponent(character));
}

function decodeId(encoded: string): string | undefined {
  try {
    const id = decodeURIComponent(encoded);
    return encodeId(id) === encoded ? id : undefined;
  } catch {
    return undefined;
  }
}

const endings: ReadonlyMap<string, StreamKind> = new Map([
  ['streams', 'str'],
  ['status', 'sta'],
]);

/** The topics of a device's own streams and status. */
export function topicsOf(device: string): string[] {
  return [...endings.keys()].map((ending) => `${encodeId(device)}/${ending}`);
}

export function streamTopic(device: string, _t: StreamKind): string {
  return `${encodeId(device)}/${_t === 'str' ? 'streams' : 'status'}`;
}

/** What a topic of two levels, `…/streams` or `…/status`, says. `device` is undefined where the first level is no encoded id. */
export interface StreamTopic {
  first: string;
  device: string | undefined;
  _t: StreamKind;
}

/** @returns undefined for every other topic */
export function parseStreamTopic(topic: string): StreamTopic | undefined {
  const at = topic.indexOf('/');
  const _t = at < 0 ? undefined : endings.get(topic.slice(at + 1));
  if (_t === undefined) return undefined;
  const first = topic.slice(0, at);
  return { first, device: decodeId(first), _t };
}

/** Whether this can be the topic of a message: not empty, no wildcards (MQTT 3.1.1 §4.7). */
export function isTopic(topic: string): boolean {
  return topic !== '' && !/[+#\0]/.test(topic);
}

/** Whether a client's message may have this topic: those that begin with `$` are the broker's own (contract 9). */
export function isTopicName(topic: string): boolean {
  return isTopic(topic) && !topic.startsWith('$');
}

/**
 * Whether all that `narrow` matches is matched by `wide`, too. A topic is a filter without wildcards, so this tells also
 * whether a filter matches a topic. Both are valid filters that do not begin with `$`.
 */
export function covers(wide: string, narrow: string): boolean {
  const outer = wide.split('/');
  // the same topics, as all have a first level
  const inner = narrow === '#' ? ['+', '#'] : narrow.split('/');
  for (const [index, level] of outer.entries()) {
    if (level === '#') return true;
    const other = inner[index];
    if (other === undefined || other === '#') return false;
    if (level !== '+' && level !== other) return false;
  }
  return inner.length === outer.length;
}
