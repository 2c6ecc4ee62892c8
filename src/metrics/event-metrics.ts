import { Counter, Gauge, type Registry } from 'prom-client';
import type { LogMetrics } from '../events/log-reader.js';
import { feedKinds, type LiveMetrics } from '../http/live/live-feeds.js';
import type { WebhookMetrics } from '../webhooks/worker-state.js';

/** Declares the metrics of the event log. */
export function createEventMetrics(registry: Registry): LogMetrics {
  const registers = [registry];
  const written = new Counter({
    name: 'events_written_total',
    help: 'Events written to the log',
    registers,
  });
  let read_until_ms: number | undefined;
  new Gauge({
    name: 'events_log_lag_seconds',
    help: 'Lag of the event log, normally below 2; 0 on instances that do not write it',
    registers,
    aggregator: 'max',
    collect() {
      this.set(read_until_ms === undefined ? 0 : Math.max(0, (Date.now() - read_until_ms) / 1000));
    },
  });
  return {
    written: (count) => written.inc(count),
    readUntil(moment) {
      read_until_ms = moment;
    },
  };
}

/** Declares the metrics of live feeds. */
export function createLiveMetrics(registry: Registry): LiveMetrics {
  const registers = [registry];
  const connections = new Gauge({
    name: 'live_connections',
    help: 'Open live feeds of `events`, `streams` and `commands`',
    labelNames: ['kind'],
    registers,
  });
  const overflows = new Counter({
    name: 'live_overflows_total',
    help: 'Live feeds ended because their reader was too far behind',
    labelNames: ['kind'],
    registers,
  });
  for (const kind of feedKinds) {
    connections.set({ kind }, 0);
    overflows.inc({ kind }, 0);
  }
  return {
    connections: (kind, count) => connections.set({ kind }, count),
    overflowed: (kind) => overflows.inc({ kind }),
  };
}

/** Declares the metrics of the delivery to webhooks. */
export function createWebhookMetrics(registry: Registry): WebhookMetrics {
  const registers = [registry];
  const deliveries = new Counter({
    name: 'webhook_deliveries_total',
    help: 'Attempts: `delivered`, `failed` (sent again), `dropped` (the last one, or the event has left the log), `gone` (410)',
    labelNames: ['outcome'],
    registers,
  });
  const undelivered = new Gauge({
    name: 'webhook_oldest_undelivered_seconds',
    help: 'Age of the oldest undelivered event; 0 in processes that do not deliver',
    registers,
    aggregator: 'max',
  });
  const failing = new Gauge({
    name: 'webhooks_failing',
    help: 'Enabled webhooks whose last attempt failed, of accounts that have some; absent in processes that do not deliver',
    labelNames: ['account'],
    registers,
    aggregator: 'max',
  });
  return {
    attempted: (outcome) => deliveries.inc({ outcome }),
    failing(counts) {
      failing.reset();
      for (const [account, count] of counts) failing.set({ account }, count);
    },
    oldest: (seconds) => undelivered.set(seconds),
  };
}
