import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import mqtt, { type IPublishPacket, type MqttClient } from 'mqtt';
import type { BridgeConfig } from '../config.js';
import type { Database, Log } from '../db/database.js';
import { releaseLease, takeLease } from '../db/leases.js';
import { AppError } from '../errors.js';
import type { Keyring } from '../repositories/api-keys.js';
import { streamsExist } from '../repositories/client-bindings.js';
import { permits } from '../schema/operation.js';
import type { Ingest } from '../telemetry/ingest.js';
import { type DropReason, ingestPublish, type PublishResult } from './ingest.js';
import { packet_limit_bytes } from './packet-limits.js';
import { keyPermissions, type Permissions } from './permissions.js';
import { type LogWarning, rateLimited } from './rate-limited-log.js';
import { topicFromKey } from './routing-keys.js';
import { parseStreamTopic, type StreamTopic } from './topics.js';

interface Options {
  bridges: readonly BridgeConfig[];
  /** The brokers are RabbitMQ and ask the service about logins and topics. */
  rabbitmq: boolean;
  db: Database;
  record: Ingest;
  keyring: Keyring;
  log: Log;
  metrics: { published(): void; dropped(reason: string): void };
  /** Epoch milliseconds. */
  clock: () => number;
}

/** Stores what devices send to external brokers. */
export interface Bridge {
  /** Finishes what is being stored, and lets another instance go on. */
  stop(): Promise<void>;
}

/** Client ids that only the bridge may have. */
export const bridge_prefix = 'platform-bridge-';

const lease = 'mqtt-bridge';
const lease_ms = 10_000;
const renew_ms = 3000;
/** This much before the database gives the lease to another, nothing more is begun. */
const margin_ms = 2000;
const retry_ms = 1000;
const finish_ms = 4000;
const most_waiting = 500;
/** A name may be 50 dots, of which RabbitMQ makes levels. */
const deepest = 51;

/** RabbitMQ takes `vhost:user` as the username; without, the virtual host is the one all share. */
export function hostAndUser(username: string): { vhost: string | undefined; user: string } {
  const at = username.lastIndexOf(':');
  return { vhost: at < 0 ? undefined : username.slice(0, at), user: username.slice(at + 1) };
}

/**
 * Subscribes to the brokers while this instance holds the lease; the others wait for it. The sessions outlast the
 * connections under client ids that all instances share, so the brokers keep what comes in between. QoS 1 is acknowledged
 * after the database has it (docs/external-broker.md tells what is promised).
 */
export function startBridge(options: Options): Bridge {
  const { bridges, db, log } = options;
  const holder = randomUUID();
  const note = rateLimited(log);
  const stopped = new AbortController();
  let links: readonly Link[] = [];
  let held_until = 0;
  let expiry: NodeJS.Timeout | undefined;
  const isHeld = () => performance.now() < held_until;

  function hold(until: number, tag: string): void {
    held_until = until;
    clearTimeout(expiry);
    expiry = setTimeout(letGo, until - performance.now());
    if (links.length > 0) return;
    log.info({}, 'MQTT bridge: this instance has it');
    links = bridges.map((bridge) => openLink(options, bridge, clientId(bridge, tag), isHeld));
  }

  function letGo(): void {
    held_until = 0;
    clearTimeout(expiry);
    if (links.length > 0) log.warn({}, 'MQTT bridge: this instance has lost it');
    for (const link of links) link.cut();
    links = [];
  }

  async function keep(): Promise<void> {
    while (!stopped.signal.aborted) {
      const asked = performance.now();
      try {
        const tag = await takeLease(db, lease, holder, lease_ms, randomBytes(8).toString('hex'));
        if (tag === undefined) letGo();
        else if (!stopped.signal.aborted) hold(asked + lease_ms - margin_ms, tag);
      } catch (error) {
        // what is held stays so until it runs out; that there is no connection yet is told elsewhere
        if (!(error instanceof AppError)) note('MQTT bridge: lease neither taken nor renewed', { err: error });
      }
      await sleep(renew_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
    }
  }
  const keeping = keep();
  return {
    async stop() {
      stopped.abort();
      await keeping;
      await Promise.all(links.map((link) => link.close()));
      clearTimeout(expiry);
      await releaseLease(db, lease, holder).catch(() => undefined);
    },
  };
}

/** One for each login, as RabbitMQ knows client ids without their virtual hosts; of 23 characters, which every broker takes. */
function clientId({ url, username }: BridgeConfig, tag: string): string {
  return bridge_prefix + createHash('sha256').update(`${tag} ${username} ${url}`).digest('hex').slice(0, 7);
}

interface Link {
  /** Finishes what is being stored; the broker keeps the rest. */
  close(): Promise<void>;
  /** Leaves at once. */
  cut(): void;
}

/** One broker: connected for as long as the link is open. */
function openLink(options: Options, bridge: BridgeConfig, client_id: string, isHeld: () => boolean): Link {
  const { log } = options;
  const note = rateLimited(log);
  const { host } = new URL(bridge.url);
  const closing = new AbortController();
  const take = taker(options, bridge, () => isHeld() && !closing.signal.aborted, note);
  let client = connect();
  let timer: NodeJS.Timeout | undefined;
  let turn: Promise<unknown> = Promise.resolve();
  let waiting = 0;
  let goOn: (() => void) | undefined;

  function connect(): MqttClient {
    const { url, username, password } = bridge;
    const login = { clientId: client_id, clean: false, username, password };
    // a client for each connection: an acknowledgement that comes late must not reach the next one, where ids begin anew
    const mine = mqtt.connect(url, {
      ...login,
      protocolVersion: 4,
      reconnectPeriod: 0,
      keepalive: 15,
      connectTimeout: 5000,
    });
    mine.on('error', (error) => note('MQTT bridge: broker failed', { host, reason: error.message }));
    mine.once('connect', () => {
      log.info({ host }, 'MQTT bridge connected');
      mine.subscribe(filtersOf(options), { qos: 1 }, (error, granted) => {
        const refused = granted?.filter(({ qos }) => qos === 128).map(({ topic }) => topic) ?? [];
        if (error != null || refused.length > 0) note('MQTT bridge: not subscribed', { host, refused, err: error });
      });
    });
    mine.once('close', () => {
      mine.end(true);
      if (closing.signal.aborted) return;
      note('MQTT bridge: connection closed', { host });
      timer = setTimeout(() => {
        client = connect();
      }, retry_ms);
    });
    mine.handleMessage = (packet, callback) => {
      const taken = take(packet);
      waiting++;
      // stored together, acknowledged in the order in which they came
      turn = turn
        .then(() => taken)
        .then((settled) => {
          waiting--;
          if (settled && packet.qos === 1) acknowledge(mine, packet);
          goOn?.();
          goOn = undefined;
        });
      // with an error mqtt.js goes on to the next message without an acknowledgement of its own
      const next = () => callback(unacknowledged);
      if (waiting < most_waiting) next();
      else goOn = next;
    };
    return mine;
  }

  function leave(force: boolean): void {
    closing.abort();
    clearTimeout(timer);
    client.end(force);
  }

  return {
    cut: () => leave(true),
    async close() {
      closing.abort();
      const finished = new AbortController();
      const limit = sleep(finish_ms, undefined, { signal: finished.signal }).catch(() => undefined);
      await Promise.race([turn, limit]);
      finished.abort();
      leave(false);
    },
  };
}

const unacknowledged = new Error('not acknowledged yet');

/** MQTT 3.1.1 §3.4. */
function acknowledge(client: MqttClient, { messageId = 0 }: IPublishPacket): void {
  if (client.connected) client.stream.write(Buffer.from([0x40, 2, messageId >> 8, messageId & 0xff]));
}

function filtersOf({ rabbitmq }: Options): string[] {
  const depths = Array.from({ length: rabbitmq ? deepest : 1 }, (_, index) => '+/'.repeat(index + 1));
  return depths.flatMap((levels) => [`${levels}streams`, `${levels}status`]);
}

/**
 * Stores a message. While the database fails it is tried again; the broker sends no more than it may have unacknowledged.
 * @returns a function that tells whether the message is settled: stored, or refused for good
 */
function taker(options: Options, { username }: BridgeConfig, isOpen: () => boolean, note: LogWarning) {
  const { rabbitmq, db, record, keyring, clock, metrics } = options;
  const vhost = rabbitmq ? hostAndUser(username).vhost : undefined;
  const only = vhost === '/' ? undefined : vhost;

  /** What may be there already, being sent or tried again, is looked for first. */
  const recordOnce: Ingest = async (job) => {
    if (!(await streamsExist(db, job))) await record(job);
  };

  async function senderOf({
    device: named,
  }: StreamTopic): Promise<{ account: string; permissions: Permissions } | undefined> {
    if (named === undefined) return undefined;
    const at = named.lastIndexOf('@');
    if (at >= 0) {
      return { account: named.slice(at + 1), permissions: { kind: 'device', device: named, hash: '', filters: [] } };
    }
    const principal = await keyring.find(named, clock() / 1000);
    if (principal === undefined || !permits(principal.scope, 'stream')) return undefined;
    return { account: principal.account, permissions: keyPermissions(named) };
  }

  async function store(topic: string, payload: Buffer, again: boolean): Promise<PublishResult> {
    const named = parseStreamTopic(topic);
    if (named === undefined) return { drop: 'invalid' };
    if (payload.length > packet_limit_bytes) return { drop: 'too_large' };
    try {
      const sender = await senderOf(named);
      if (sender === undefined || (only !== undefined && sender.account !== only)) return { drop: 'not_allowed' };
      return await ingestPublish(again ? recordOnce : record, { ...sender, topic, payload, now: clock() / 1000 });
    } catch (error) {
      return { drop: 'database', error };
    }
  }

  function dropped(reason: DropReason, error: unknown): void {
    metrics.dropped(reason);
    note(`MQTT bridge: message dropped: ${reason}`, error === undefined ? {} : { err: error });
  }

  return async ({ topic: sent, payload, retain, dup }: IPublishPacket): Promise<boolean> => {
    // retained ones come with every subscription
    if (retain) return true;
    const topic = rabbitmq ? topicFromKey(sent) : sent;
    const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
    metrics.published();
    for (let again = dup; isOpen(); again = true) {
      const verdict = await store(topic, bytes, again);
      if (!('drop' in verdict)) return true;
      if (verdict.drop !== 'database') {
        dropped(verdict.drop, verdict.error);
        return true;
      }
      note('MQTT bridge: not stored yet', { err: verdict.error });
      await sleep(retry_ms);
    }
    return false;
  };
}
