import { collectDefaultMetrics, Registry } from 'prom-client';
import {
  createCertificateMetrics,
  createFleetMetrics,
  createPoolMetrics,
  createStateMetrics,
  type ProcessState,
} from './database-metrics.js';
import { createAlarmMetrics, createEventMetrics, createLiveMetrics, createWebhookMetrics } from './event-metrics.js';
import { createMetricFactory } from './metric-factory.js';
import {
  createBrokerMetrics,
  createCommandMetrics,
  createDeviceStateMetrics,
  createIngestMetrics,
  createRequestMetrics,
  createSummaryMetrics,
} from './telemetry-metrics.js';
import type { MetricsSnapshot } from './worker-metrics.js';

export type Metrics = ReturnType<typeof createMetrics>;

/** Gauges of prom-client that are named like counters, and are sums of the gauges with labels beside them. */
const misnamed_totals = ['handles', 'requests', 'resources'].map((kind) => `nodejs_active_${kind}_total`);

/** Hands the metrics of this process to the primary one. @returns a function that returns the metrics of all processes */
export type ShareMetrics = (readSnapshot: () => Promise<MetricsSnapshot>) => () => Promise<string>;

interface Options {
  version: string;
  /** Reads what the process knows without a query. */
  readState(): ProcessState;
  /** Reads the seconds until the certificate ends; undefined without TLS. */
  readCertificateTime?: (() => number) | undefined;
  /** In a worker. */
  share?: ShareMetrics | undefined;
}

/** Declares all metrics (docs/operations.md#metrics). */
export function createMetrics({ version, readState, readCertificateTime, share }: Options) {
  const registry = new Registry();
  const factory = createMetricFactory(registry);
  createStateMetrics(factory, version, readState);
  createCertificateMetrics(factory, readCertificateTime);
  const metrics = {
    requests: createRequestMetrics(factory),
    telemetry: createIngestMetrics(factory),
    mqtt: createBrokerMetrics(factory),
    events: createEventMetrics(factory),
    summaries: createSummaryMetrics(factory),
    live: createLiveMetrics(factory),
    commands: createCommandMetrics(factory),
    states: createDeviceStateMetrics(factory),
    webhooks: createWebhookMetrics(factory),
    alarms: createAlarmMetrics(factory),
    pool: createPoolMetrics(factory),
    fleet: createFleetMetrics(factory),
  };
  collectDefaultMetrics({ register: registry });
  for (const name of misnamed_totals) registry.removeSingleMetric(name);
  const text = share?.(() => registry.getMetricsAsJSON()) ?? (() => registry.metrics());
  return { registry, contentType: registry.contentType, text, ...metrics };
}
