import mqtt, { type IPublishPacket, type MqttClient } from 'mqtt';
import type { Log } from '../../db/database.js';
import { awaitLater } from '../../lib/promises.js';
import { createRateLimitedLog } from '../../lib/rate-limited-log.js';
import type { BridgeConfig } from '../../lib/server-addresses.js';
import { runUntilTimeLimit } from '../../lib/time-limit.js';
import type { Consume } from './bridge-consumer.js';

interface Options {
  bridge: BridgeConfig;
  client_id: string;
  consumer: Consume;
  log: Log;
  rabbitmq: boolean;
}

const retry_ms = 1000;
const finish_ms = 4000;
const max_unsettled = 500;
/** RabbitMQ turns each dot of a device name and of an account into a level; brokers take at most 100, the last included. */
const max_levels = 99;

/** mqtt.js sends no acknowledgement of its own for a message whose handler reports an error. */
const acknowledgedLater = new Error('acknowledged later');

/** The connection to one broker, reopened whenever it closes. */
export type Link = ReturnType<typeof openLink>;

/**
 * Connects to a broker and hands its messages to `consumer`; settled ones are acknowledged in the order of arrival. `close`
 * finishes those being stored, then disconnects; the broker keeps the others. `disconnect` disconnects at once.
 */
export function openLink({ bridge, client_id, consumer, log, rabbitmq }: Options) {
  const warn = createRateLimitedLog(log);
  const { host } = new URL(bridge.url);
  const closing = new AbortController();
  const isOpen = () => !closing.signal.aborted;
  const messages = createAckQueue((packet) => consumer(packet, isOpen));
  let timer: NodeJS.Timeout | undefined;
  let client = connect();

  // a client per connection: a late acknowledgement must not reach the next connection, which reuses packet ids
  function connect(): MqttClient {
    const { url, username, password } = bridge;
    const opened = mqtt.connect(url, {
      clientId: client_id,
      clean: false,
      username,
      password,
      protocolVersion: 4,
      reconnectPeriod: 0,
      keepalive: 15,
      connectTimeout: 5000,
    });
    opened.on('error', (error) => warn('MQTT bridge: broker failed', { host, reason: error.message }));
    opened.once('connect', () => {
      opened.subscribe(createFilters(rabbitmq), { qos: 1 }, (error, granted) => {
        const refused = granted?.filter(({ qos }) => qos === 128).map(({ topic }) => topic) ?? [];
        if (error != null || refused.length > 0) warn('MQTT bridge: not subscribed', { host, refused, err: error });
        else log.info({ host }, 'MQTT bridge connected');
      });
    });
    opened.once('close', () => {
      opened.end(true);
      if (!isOpen()) return;
      warn('MQTT bridge: connection closed', { host });
      timer = setTimeout(() => {
        client = connect();
      }, retry_ms);
    });
    opened.handleMessage = (packet, callback) => messages.add(opened, packet, () => callback(acknowledgedLater));
    return opened;
  }

  function disconnect(force = true): void {
    closing.abort();
    clearTimeout(timer);
    client.end(force);
  }

  return {
    disconnect,
    async close(): Promise<void> {
      closing.abort();
      await runUntilTimeLimit(finish_ms, undefined, messages.settled).catch(() => undefined);
      disconnect(false);
    },
  };
}

/** Stores messages concurrently and acknowledges them in order; takes no further one while 500 are unsettled. */
function createAckQueue(consume: (packet: IPublishPacket) => Promise<boolean>) {
  let tail: Promise<unknown> = Promise.resolve();
  let unsettled = 0;
  let resume: (() => void) | undefined;
  return {
    add(client: MqttClient, packet: IPublishPacket, next: () => void): void {
      const consumed = awaitLater(consume(packet));
      unsettled++;
      const settle = (isSettled: boolean) => {
        unsettled--;
        if (isSettled && packet.qos === 1) acknowledge(client, packet);
        resume?.();
        resume = undefined;
      };
      tail = tail.then(() => consumed).then(settle, () => settle(false));
      if (unsettled < max_unsettled) next();
      else resume = next;
    },
    settled: async () => tail,
  };
}

/** Sends a PUBACK (MQTT 3.1.1 §3.4). */
function acknowledge(client: MqttClient, { messageId = 0 }: IPublishPacket): void {
  if (client.connected) client.stream.write(Buffer.from([0x40, 2, messageId >> 8, messageId & 0xff]));
}

function createFilters(rabbitmq: boolean): string[] {
  const prefixes = Array.from({ length: rabbitmq ? max_levels : 1 }, (_, index) => '+/'.repeat(index + 1));
  return prefixes.flatMap((levels) => [`${levels}streams`, `${levels}status`]);
}
