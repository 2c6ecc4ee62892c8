import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type LeasedJob, startLeasedJob } from '../../db/leased-job.js';
import type { BridgeConfig } from '../../lib/server-addresses.js';
import { type ConsumerOptions, createConsumer } from './bridge-consumer.js';
import { openLink } from './bridge-link.js';
import { createClientId } from './bridge-login.js';

interface Options extends ConsumerOptions {
  bridges: readonly BridgeConfig[];
}

const lease_ms = 10_000;

/**
 * Stores the messages that devices publish to external brokers while this instance holds the lease; other instances wait
 * for it. All instances use the same client ids and persistent sessions, so the brokers queue messages while no instance is
 * connected. QoS 1 is acknowledged after the message is stored (docs/external-broker.md describes the guarantees). `stop`
 * finishes the messages being stored.
 */
export function startBridge(options: Options): LeasedJob {
  const { bridges, db, log, rabbitmq } = options;
  let isStopping = false;
  const job = startLeasedJob({
    db,
    log,
    name: 'mqtt-bridge',
    lease_ms,
    tag: randomBytes(8).toString('hex'),
    async work({ tag, signal, isLeaseHeld }) {
      log.info({}, 'MQTT bridge: this instance holds the lease');
      const links = bridges.map((bridge) => {
        const consumer = createConsumer(options, bridge, isLeaseHeld);
        return openLink({ bridge, client_id: createClientId(bridge, tag), consumer, log, rabbitmq });
      });
      if (!signal.aborted) await once(signal, 'abort');
      if (isStopping) await Promise.all(links.map((link) => link.close()));
      else {
        log.warn({}, 'MQTT bridge: this instance has lost the lease');
        for (const link of links) link.disconnect();
      }
    },
  });
  return {
    stop() {
      isStopping = true;
      return job.stop();
    },
  };
}
