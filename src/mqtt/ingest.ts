import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields.js';
import { parseJson } from '../schema/json.js';
import type { Ingest } from '../telemetry/ingest.js';
import { type ParsedStreams, parseStreams } from '../telemetry/parse-streams.js';
import type { Permissions } from './permissions.js';
import { parseStreamTopic, type StreamTopic, streamTopic } from './topics.js';

/** Reasons to drop a message, the label of `mqtt_dropped_total`. */
export type DropReason = 'not_allowed' | 'invalid' | 'database' | 'too_large' | 'retained_full' | 'queue_full';

export interface Message {
  topic: string;
  payload: Buffer;
}

/** The outcome of a publish: forward it as it is, forward other messages instead, or drop it. */
export type PublishResult = { forward: 'itself' | readonly Message[] } | { drop: DropReason; error?: unknown };

/** A publish that its sender is authorized for. `now` in epoch seconds. */
interface Publish extends Message {
  account: string;
  permissions: Permissions;
  now: number;
}

/** Stores the streams of a publish to `…/streams` or `…/status`; they are durable when this resolves (reference/mqtt.md#publishing). */
export async function ingestPublish(record: Ingest, publish: Publish): Promise<PublishResult> {
  const { account, permissions, topic, payload, now } = publish;
  const streamTopic = parseStreamTopic(topic);
  if (streamTopic === undefined) return { forward: 'itself' };
  try {
    const body = parseJson(payload);
    const parsed = permissions.kind === 'key' ? parseFromKey(body, streamTopic) : parseFromDevice(body, streamTopic);
    await record({ ...parsed, account, user: undefined, now });
    return { forward: permissions.kind === 'key' ? messagesByDevice(parsed, body, streamTopic) : 'itself' };
  } catch (error) {
    const isInvalid = error instanceof AppError && (error.failure === 'invalid' || error.failure === 'badJson');
    return isInvalid ? { drop: 'invalid' } : { drop: 'database', error };
  }
}

/** @throws AppError badJson (4001), invalid (4003) */
function parseFromDevice(body: unknown, { device, _t }: StreamTopic): ParsedStreams {
  if (device === undefined) throw new AppError('invalid', { device: 'does not exist' });
  const isBareData = isPlainObject(body) && !Object.hasOwn(body, 'data');
  return parseStreams(isBareData ? { data: body } : body, { device, _t, protocol: 'mqtt' });
}

/** Each entry names its device (protocol of the former platform). @throws AppError badJson (4001), invalid (4003) */
function parseFromKey(body: unknown, { _t }: StreamTopic): ParsedStreams {
  return parseStreams(body, { _t, protocol: 'mqtt' });
}

/** Republishes the entries under their devices' topics, because the original topic holds the key. */
function messagesByDevice({ entries }: ParsedStreams, body: unknown, { _t }: StreamTopic): Message[] {
  const sent = Array.isArray(body) ? (body as unknown[]) : [body];
  const byDevice = new Map<string, unknown[]>();
  for (const [index, { device }] of entries.entries()) {
    const stream = { ...(sent[index] as object), device: undefined };
    const streams = byDevice.get(device);
    if (streams === undefined) byDevice.set(device, [stream]);
    else streams.push(stream);
  }
  return [...byDevice].map(([device, streams]) => ({
    topic: streamTopic(device, _t),
    payload: Buffer.from(JSON.stringify(streams.length === 1 ? streams[0] : streams)),
  }));
}
