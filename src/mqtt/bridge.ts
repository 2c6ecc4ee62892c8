import { randomBytes, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BridgeConfig } from '../config.js';
import { releaseLease, takeLease } from '../db/leases.js';
import { AppError } from '../errors.js';
import { createRateLimitedLog } from '../rate-limited-log.js';
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

const lease = 'mqtt-bridge';
const lease_ms = 10_000;
const renew_ms = 3000;
/** Consumption stops this long before the database gives the lease to another instance. */
const lease_margin_ms = 2000;

/**
 * Subscribes to the brokers while this instance holds the lease; other instances wait for it. All instances use the same
 * client ids and persistent sessions, so the brokers queue messages while no instance is connected. QoS 1 is acknowledged
 * after the message is stored (docs/external-broker.md describes the guarantees).
 */
export function startBridge(options: Options): Bridge {
  const { bridges, db, log } = options;
  const holder = randomUUID();
  const warn = createRateLimitedLog(log);
  const stopped = new AbortController();
  let links: readonly Link[] = [];
  let held_until = 0;
  let expiry: NodeJS.Timeout | undefined;
  const isHeld = () => performance.now() < held_until;

  function acquire(until: number, tag: string): void {
    held_until = until;
    clearTimeout(expiry);
    expiry = setTimeout(release, until - performance.now());
    if (links.length > 0) return;
    log.info({}, 'MQTT bridge: this instance holds the lease');
    links = bridges.map((bridge) => {
      const consumer = createConsumer(options, bridge, isHeld);
      return openLink({ bridge, client_id: createClientId(bridge, tag), consumer, log, rabbitmq: options.rabbitmq });
    });
  }

  function release(): void {
    held_until = 0;
    clearTimeout(expiry);
    if (links.length > 0) log.warn({}, 'MQTT bridge: this instance has lost the lease');
    for (const link of links) link.disconnect();
    links = [];
  }

  async function runLeaseLoop(): Promise<void> {
    while (!stopped.signal.aborted) {
      const requested_at = performance.now();
      try {
        const tag = await takeLease(db, lease, holder, lease_ms, randomBytes(8).toString('hex'));
        if (tag === undefined) release();
        else if (!stopped.signal.aborted) acquire(requested_at + lease_ms - lease_margin_ms, tag);
      } catch (error) {
        // keep the lease until it expires; connection errors are logged elsewhere
        if (!(error instanceof AppError)) warn('MQTT bridge: cannot take or renew the lease', { err: error });
      }
      await sleep(renew_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
    }
  }

  const leaseLoop = runLeaseLoop();
  return {
    async stop() {
      stopped.abort();
      await leaseLoop;
      await Promise.all(links.map((link) => link.close()));
      clearTimeout(expiry);
      await releaseLease(db, lease, holder).catch(() => undefined);
    },
  };
}
