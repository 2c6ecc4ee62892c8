import type { EvaluationMetrics } from '../alarms/observe.js';
import type { WatchMetrics } from '../alarms/watch.js';
import type { LogMetrics } from '../events/log-reader.js';
import { feedKinds, type LiveMetrics } from '../http/live/live-feeds.js';
import type { WebhookMetrics } from '../webhooks/worker-state.js';
import { type MetricFactory, request_buckets } from './metric-factory.js';

/** Declares the lag of a job in seconds; `until` is the time (epoch milliseconds) up to which it has done its work. */
function createLag({ gauge }: MetricFactory, name: string, help: string): { until: number | undefined } {
  const progress: { until: number | undefined } = { until: undefined };
  gauge(name, help, {
    aggregator: 'max',
    collect: (lag) => lag.set(Math.max(0, (Date.now() - (progress.until ?? Date.now())) / 1000)),
  });
  return progress;
}

/** Declares the metrics of the event log. */
export function createEventMetrics(factory: MetricFactory): LogMetrics {
  const written = factory.counter('events_written_total', 'Events written to the log');
  const help = 'Lag of the event log, normally below 2; 0 on instances that do not write it';
  const read = createLag(factory, 'events_log_lag_seconds', help);
  return {
    written: (count) => written.inc(count),
    readUntil(moment) {
      read.until = moment;
    },
  };
}

/** Declares the metrics of live feeds. */
export function createLiveMetrics({ counter, gauge }: MetricFactory): LiveMetrics {
  const help = 'Open live feeds of `events`, `streams` and `commands`';
  const connections = gauge('live_connections', help, { labelNames: ['kind'] });
  const overflows = counter('live_overflows_total', 'Live feeds ended because their reader was too far behind', 'kind');
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
export function createWebhookMetrics({ counter, gauge }: MetricFactory): WebhookMetrics {
  const deliveries = counter(
    'webhook_deliveries_total',
    'Attempts: `delivered`, `failed` (sent again), `dropped` (the last one, or the event has left the log), `gone` (410)',
    'outcome',
  );
  const undelivered = gauge(
    'webhook_oldest_undelivered_seconds',
    'Age of the oldest undelivered event; 0 in processes that do not deliver',
    { aggregator: 'max' },
  );
  const failing = gauge(
    'webhooks_failing',
    'Enabled webhooks whose last attempt failed, of accounts that have some; absent in processes that do not deliver',
    { labelNames: ['account'], aggregator: 'max' },
  );
  return {
    attempted: (outcome) => deliveries.inc({ outcome }),
    failing(counts) {
      failing.reset();
      for (const [account, count] of counts) failing.set({ account }, count);
    },
    oldest: (seconds) => undelivered.set(seconds),
  };
}

/** Declares the metrics of alarm rules and alarms. */
export function createAlarmMetrics(factory: MetricFactory): EvaluationMetrics & WatchMetrics {
  const evaluation = factory.histogram(
    'alarms_evaluation_seconds',
    'Time that alarm rules add to a batch of streams of devices that they cover',
    request_buckets,
  );
  const help =
    'Lag of deadlines and of changed rules and devices, normally below 2; 0 on instances that do not watch them';
  const watched = createLag(factory, 'alarms_lag_seconds', help);
  return {
    evaluated: (milliseconds) => evaluation.observe(milliseconds / 1000),
    watchedUntil(moment) {
      watched.until = moment;
    },
  };
}
