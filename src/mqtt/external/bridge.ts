import { randomBytes } from 'node:crypto';
import type { BridgeConfig } from '../../config.js';
import { holdLease } from '../../db/leases.js';
import { createRateLimitedLog } from '../../lib/rate-limited-log.js';
import { type ConsumerOptions, createConsumer } from './bridge-consumer.js';
import { type Link, openLink } from './bridge-link.js';
import { createClientId } from './bridge-login.js';

interface Options extends ConsumerOptions {
  bridges: readonly BridgeConfig[];
}

/** Stores the messages that devices publish to external brokers. */
export interface Bridge {
  /** Finishes the messages being stored, then releases the lease to another instance. */
  stop(): Promise<void>;
}

/**
 * Subscribes to the brokers while this instance holds the lease; other instances wait for it. All instances use the same
 * client ids and persistent sessions, so the brokers queue messages while no instance is connected. QoS 1 is acknowledged
 * after the message is stored (docs/external-broker.md describes the guarantees).
 */
export function startBridge(options: Options): Bridge {
  const { bridges, db, log } = options;
  const warn = createRateLimitedLog(log);
  let links: readonly Link[] = [];

  const lease = holdLease(
    db,
    'mqtt-bridge',
    {
      held(tag) {
        if (links.length > 0) return;
        log.info({}, 'MQTT bridge: this instance holds the lease');
        links = bridges.map((bridge) => {
          const consumer = createConsumer(options, bridge, lease.isHeld);
          return openLink({
            bridge,
            client_id: createClientId(bridge, tag),
            consumer,
            log,
            rabbitmq: options.rabbitmq,
          });
        });
      },
      lost() {
        if (links.length > 0) log.warn({}, 'MQTT bridge: this instance has lost the lease');
        for (const link of links) link.disconnect();
        links = [];
      },
      failed: (error) => warn('MQTT bridge: cannot take or renew the lease', { err: error }),
    },
    randomBytes(8).toString('hex'),
  );

  return {
    stop: () =>
      lease.stop(async () => {
        await Promise.all(links.map((link) => link.close()));
      }),
  };
}
