import { AppError } from '../../errors.js';
import { groupBy } from '../../lib/group-by.js';
import { isPlainObject } from '../../schema/fields/object.js';
import { parseJson, tooManyValues } from '../../schema/json.js';
import type { Ingest } from '../../streams/ingest.js';
import { type ParsedStreams, parseStreams, streamWithDevice } from '../../streams/parse-streams.js';
import { formatStreamTopic, parseStreamTopic, type StreamTopic } from '../protocol/topics.js';
import type { TopicPermissions } from './permissions.js';

/** Reasons to drop a message, the label `reason` of `mqtt_dropped_total`. */
export type DropReason = 'not_allowed' | 'invalid' | 'database' | 'too_large' | 'retained_full' | 'queue_full';

/** A dropped message. */
export interface Drop {
  drop: DropReason;
  /** The first invalid field, the label `field` of `mqtt_dropped_total`: one of the names in `droppedField`. */
  field?: string;
  /** The rule that the field violates. */
  fault?: string;
  /** The rules that fields of the payload violate, by their paths. */
  details?: AppError['details'];
  error?: unknown;
}

export interface Message {
  topic: string;
  payload: Buffer;
}

/** The outcome of a publish: forward it as it is, forward other messages instead, or drop it. */
export type PublishResult = { forward: 'itself' | readonly Message[] } | Drop;

/** A publish that its sender is authorized for. `now` in epoch seconds. */
interface Publish extends Message {
  account: string;
  permissions: TopicPermissions;
  now: number;
}

/** Stores the streams of a publish to `…/streams` or `…/status`; they are durable when this resolves (reference/mqtt.md#publishing). */
export async function ingestPublish(ingest: Ingest, publish: Publish): Promise<PublishResult> {
  const { account, permissions, topic, payload, now } = publish;
  const target = parseStreamTopic(topic, permissions.kind === 'key');
  if (target === undefined) return { forward: 'itself' };
  try {
    const parsed = parsePublish(payload, target, permissions);
    if ('drop' in parsed) return parsed;
    const { entries, fieldOf } = parsed.streams;
    // a device may be a gateway: its topics say for which others
    const limit = permissions.kind === 'key' ? permissions.limit : undefined;
    await ingest({ entries, fieldOf, account, limit, user: undefined, now: Math.floor(now) });
    return { forward: parsed.forward };
  } catch (error) {
    return (error instanceof AppError && dropInvalid(error)) || { drop: 'database', error };
  }
}

/** Parses a payload. Not asynchronous: a suspended function would keep the JSON in memory. @throws AppError as parseStreams */
function parsePublish(payload: Buffer, target: StreamTopic, { kind }: TopicPermissions) {
  const { value, fault } = parseJson(payload);
  if (fault === 'tooManyValues') return { drop: 'invalid', field: 'payload', fault: tooManyValues } as const;
  const body = removeKinds(value);
  if (kind !== 'key') return { streams: parseFromDevice(body, target), forward: 'itself' } as const;
  // each entry names its device (protocol of the former platform)
  const streams = parseStreams(body, { _t: target._t, protocol: 'mqtt' });
  return { streams, forward: messagesByDevice(streams, body, target) };
}

/**
 * Removes `_t` from stream objects, because the topic decides the kind. Bare data has no `data` member and keeps its `_t`.
 */
function removeKinds(body: unknown): unknown {
  if (Array.isArray(body)) return body.map(removeKinds);
  if (!isPlainObject(body) || !Object.hasOwn(body, 'data') || !Object.hasOwn(body, '_t')) return body;
  const { _t, ...rest } = body;
  return rest;
}

/** @returns undefined unless the error is badJson (4001) or invalid (4003) */
function dropInvalid({ failure, details }: AppError): Drop | undefined {
  if (failure === 'badJson') return { drop: 'invalid', field: 'payload', fault: 'must be a JSON object or array' };
  if (failure !== 'invalid') return undefined;
  const [path = '', fault] = Object.entries(details)[0] ?? [];
  return { drop: 'invalid', field: droppedField(path), fault: String(fault), details };
}

/** Names a drop in logs, `invalid data` for example; has few distinct values, so that lines can be rate-limited by it. */
export function describeDrop({ drop, field }: Drop): string {
  return field === undefined ? drop : `${drop} ${field}`;
}

/** Maps a path such as `3.data` to a field name that clients cannot choose, so that it may label a metric. */
function droppedField(path: string): string {
  const [field = ''] = path.replace(/^[0-9]+(?:\.|$)/, '').split('.');
  if (field === '' || field === 'streams') return 'payload';
  return Object.hasOwn(streamWithDevice.fields, field) ? field : 'unknown';
}

/** @throws AppError badJson (4001), invalid (4003) */
function parseFromDevice(body: unknown, { device, _t }: StreamTopic): ParsedStreams {
  if (device === undefined) throw new AppError('invalid', { device: 'does not exist' });
  const isBareData = isPlainObject(body) && !Object.hasOwn(body, 'data');
  return parseStreams(isBareData ? { data: body } : body, { device, _t, protocol: 'mqtt' });
}

/** Republishes the entries under their devices' topics, because the original topic holds the key. */
function messagesByDevice({ entries }: ParsedStreams, body: unknown, { _t }: StreamTopic): Message[] {
  const sent = Array.isArray(body) ? (body as unknown[]) : [body];
  const streams = entries.map(({ device }, index) => ({
    device,
    sent: { ...(sent[index] as object), device: undefined },
  }));
  return [...groupBy(streams, ({ device }) => device)].map(([device, own]) => ({
    topic: formatStreamTopic(device, _t),
    payload: Buffer.from(JSON.stringify(own.length === 1 ? own[0]?.sent : own.map((stream) => stream.sent))),
  }));
}
