import { setTimeout as sleep } from 'node:timers/promises';
import type { IPublishPacket } from 'mqtt';
import type { Log } from '../../db/database.js';
import { createRateLimitedLog } from '../../lib/rate-limited-log.js';
import type { BridgeConfig } from '../../lib/server-addresses.js';
import type { Keyring } from '../../objects/api-keys.js';
import { isScopeSufficient } from '../../schema/operation.js';
import type { Ingest } from '../../streams/ingest.js';
import { packet_limit_bytes } from '../connection/frames.js';
import type { LoginDeps } from '../login/login.js';
import { parseStreamTopic, type StreamTopic } from '../protocol/topics.js';
import { type Drop, type DropReason, describeDrop, ingestPublish, type PublishResult } from '../sessions/ingest.js';
import { redactTopic } from '../sessions/login-names.js';
import { createKeyPermissions, type LoggedIn } from '../sessions/permissions.js';
import { splitUsername } from './bridge-login.js';
import { hasStreams } from './client-bindings.js';
import { canShareVhost, topicFromKey } from './routing-keys.js';

export interface ConsumerOptions extends Pick<LoginDeps, 'db' | 'keyring' | 'clock'> {
  /** The brokers are RabbitMQ, which delegates logins and topic checks to the service. */
  rabbitmq: boolean;
  ingest: Ingest;
  log: Log;
  metrics: { published(): void; dropped(reason: DropReason, field?: string): void };
}

/** Handles a message while `isOpen`. @returns whether it is settled: stored, or dropped for good */
export type Consume = (packet: IPublishPacket, isOpen: () => boolean) => Promise<boolean>;

const retry_ms = 1000;

/**
 * Creates the consumer of a broker's messages. While the database fails it retries; the broker's own limit of
 * unacknowledged messages then stops the delivery.
 */
export function createConsumer(options: ConsumerOptions, { username }: BridgeConfig, isHeld: () => boolean): Consume {
  const { rabbitmq, metrics, db, ingest, keyring, clock } = options;
  const vhost = rabbitmq ? splitUsername(username).vhost : undefined;
  const isShared = rabbitmq && (vhost === undefined || vhost === '/');
  const isAccepted = (account: string) => (isShared ? canShareVhost(account) : !rabbitmq || account === vhost);
  const warn = createRateLimitedLog(options.log);

  function reportDropped(dropped: Drop, sentTopic: string): void {
    const { drop, field, fault, error } = dropped;
    metrics.dropped(drop, field);
    const topic = redactTopic(sentTopic);
    const fields = { topic, ...(fault !== undefined && { fault }), ...(error !== undefined && { err: error }) };
    warn(`MQTT bridge: message dropped: ${describeDrop(dropped)}`, fields, topic);
  }

  /** @param isRetry the message may be stored already */
  async function storeMessage(topic: string, payload: Buffer, isRetry: boolean): Promise<PublishResult> {
    const streamTopic = parseStreamTopic(topic, true);
    if (streamTopic === undefined)
      return { drop: 'invalid', field: 'topic', fault: 'must end with /streams or /status' };
    if (payload.length > packet_limit_bytes) return { drop: 'too_large' };
    const now = clock() / 1000;
    const ingestOnce: Ingest = async (job) => {
      if (!(await hasStreams(db, job))) await ingest(job);
    };
    try {
      const sender = await findSender(keyring, streamTopic, now);
      if (sender === undefined || !isAccepted(sender.account)) return { drop: 'not_allowed' };
      return await ingestPublish(isRetry ? ingestOnce : ingest, { ...sender, topic, payload, now });
    } catch (error) {
      return { drop: 'database', error };
    }
  }

  return async ({ topic: sentTopic, payload, retain, dup }, isOpen) => {
    // the broker repeats retained messages with every subscription
    if (retain) return true;
    const topic = rabbitmq ? topicFromKey(sentTopic) : sentTopic;
    const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
    metrics.published();
    for (let isRetry = dup; isHeld() && isOpen(); isRetry = true) {
      const result = await storeMessage(topic, bytes, isRetry);
      if (!('drop' in result)) return true;
      if (result.drop !== 'database') {
        reportDropped(result, topic);
        return true;
      }
      warn('MQTT bridge: message not stored yet', { err: result.error });
      await sleep(retry_ms);
    }
    return false;
  };
}

/** Derives the sender from the topic, which the broker has authorized: a device, or an API key that may send streams. */
async function findSender(
  keyring: Keyring,
  { device }: StreamTopic,
  now: number,
): Promise<Omit<LoggedIn, 'owner'> | undefined> {
  if (device === undefined) return undefined;
  const at = device.lastIndexOf('@');
  if (at >= 0)
    return {
      account: device.slice(at + 1),
      permissions: { kind: 'device', device, parent: '', hash: '', filters: [] },
    };
  const principal = await keyring.find(device, now);
  if (principal === undefined || !isScopeSufficient(principal.scope, 'stream')) return undefined;
  const { account, limit } = principal;
  // such a key publishes to the topics of its device
  if (limit?.field === 'id_device') return undefined;
  return { account, permissions: createKeyPermissions(device, limit) };
}
