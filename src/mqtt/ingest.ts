import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields/object.js';
import { parseJson } from '../schema/json.js';
import type { Ingest } from '../telemetry/ingest.js';
import { type ParsedStreams, parseStreams } from '../telemetry/parse-streams.js';
import type { Permissions } from './permissions.js';
import { parseStreamTopic, type StreamTopic, streamTopic } from './topics.js';

/** Why a publish goes nowhere: the label of `mqtt_dropped_total`. */
export type DropReason = 'not_allowed' | 'invalid' | 'database' | 'too_large' | 'retained_full' | 'queue_full';

export interface Message {
  topic: string;
  payload: Buffer;
}

/** What becomes of a publish: it goes on as it is, goes on as other messages, or nowhere. */
export type PublishResult = { forward: 'itself' | readonly Message[] } | { drop: DropReason; error?: unknown };

/** A publish with its sender, who may use the topic. `now` in epoch seconds. */
interface Publish extends Message {
  account: string;
  permissions: Permissions;
  now: number;
}

/** Stores what a publish to `…/streams` or `…/status` holds; it is in the database when this returns (contract 9). */
export async function ingestPublish(record: Ingest, publish: Publish): Promise<PublishResult> {
  const { account, permissions, topic, payload, now } = publish;
  const named = parseStreamTopic(topic);
  if (named === undefined) return { forward: 'itself' };
  try {
    const given = parseJson(payload);
    const sent = permissions.kind === 'key' ? ofAccount(given, named) : ofDevice(given, named);
    await record({ ...sent, account, user: undefined, now });
    return { forward: permissions.kind === 'key' ? messagesOf(sent, given, named) : 'itself' };
  } catch (error) {
    const refused = error instanceof AppError && (error.failure === 'invalid' || error.failure === 'badJson');
    return refused ? { drop: 'invalid' } : { drop: 'database', error };
  }
}

/** @throws AppError badJson (4001), invalid (4003) */
function ofDevice(given: unknown, { device, _t }: StreamTopic): ParsedStreams {
  if (device === undefined) throw new AppError('invalid', { device: 'does not exist' });
  const bare = isPlainObject(given) && !Object.hasOwn(given, 'data');
  return parseStreams(bare ? { data: given } : given, { device, _t, protocol: 'mqtt' });
}

/** Every entry names its device, as devices of the former platform send it. @throws AppError badJson (4001), invalid (4003) */
function ofAccount(given: unknown, { _t }: StreamTopic): ParsedStreams {
  return parseStreams(given, { _t, protocol: 'mqtt' });
}

/** The same entries under the topics of their devices: the topic they came under holds the key. */
function messagesOf({ entries }: ParsedStreams, given: unknown, { _t }: StreamTopic): Message[] {
  const all = Array.isArray(given) ? (given as unknown[]) : [given];
  const byDevice = new Map<string, unknown[]>();
  for (const [index, { device }] of entries.entries()) {
    const one = { ...(all[index] as object), device: undefined };
    byDevice.set(device, [...(byDevice.get(device) ?? []), one]);
  }
  return [...byDevice].map(([device, list]) => ({
    topic: streamTopic(device, _t),
    payload: Buffer.from(JSON.stringify(list.length === 1 ? list[0] : list)),
  }));
}
