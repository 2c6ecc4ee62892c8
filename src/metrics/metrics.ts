import { collectDefaultMetrics, Registry } from 'prom-client';
import type { EvaluationMetrics } from '../alarms/observe.js';
import type { WatchMetrics } from '../alarms/watch.js';
import type { CommandMetrics } from '../commands/delivery.js';
import type { PoolMetrics } from '../db/pool-events.js';
import type { StateMetrics } from '../device-state/store.js';
import type { LogMetrics } from '../events/log-reader.js';
import type { LiveMetrics } from '../http/live/live-feeds.js';
import type { RequestMetrics } from '../http/measure-requests.js';
import type { BrokerMetrics } from '../mqtt/broker.js';
import type { IngestMetrics } from '../streams/ingest.js';
import type { SummaryMetrics } from '../summaries/job.js';
import type { WebhookMetrics } from '../webhooks/worker-state.js';
import { createAlarmMetrics } from './alarm-metrics.js';
import {
  createCertificateMetrics,
  createFleetMetrics,
  createPoolMetrics,
  createStateMetrics,
  type ProcessState,
} from './database-metrics.js';
import { createEventMetrics, createLiveMetrics, createWebhookMetrics } from './event-metrics.js';
import type { FleetCounts } from './fleet-counts.js';
import { createRequestMetrics } from './request-metrics.js';
import {
  createBrokerMetrics,
  createCommandMetrics,
  createDeviceStateMetrics,
  createIngestMetrics,
  createSummaryMetrics,
} from './telemetry-metrics.js';
import type { MetricsSnapshot } from './worker-metrics.js';

export interface Metrics {
  registry: Registry;
  contentType: string;
  text(): Promise<string>;
  requests: RequestMetrics;
  telemetry: IngestMetrics;
  mqtt: BrokerMetrics;
  events: LogMetrics;
  summaries: SummaryMetrics;
  live: LiveMetrics;
  commands: CommandMetrics;
  states: StateMetrics;
  webhooks: WebhookMetrics;
  alarms: EvaluationMetrics & WatchMetrics;
  pool: PoolMetrics;
  fleet(counts: FleetCounts | undefined): void;
}

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
export function createMetrics({ version, readState, readCertificateTime, share }: Options): Metrics {
  const registry = new Registry();
  createStateMetrics(registry, version, readState);
  createCertificateMetrics(registry, readCertificateTime);
  const metrics = {
    requests: createRequestMetrics(registry),
    telemetry: createIngestMetrics(registry),
    mqtt: createBrokerMetrics(registry),
    events: createEventMetrics(registry),
    summaries: createSummaryMetrics(registry),
    live: createLiveMetrics(registry),
    commands: createCommandMetrics(registry),
    states: createDeviceStateMetrics(registry),
    webhooks: createWebhookMetrics(registry),
    alarms: createAlarmMetrics(registry),
    pool: createPoolMetrics(registry),
    fleet: createFleetMetrics(registry),
  };
  collectDefaultMetrics({ register: registry });
  for (const name of misnamed_totals) registry.removeSingleMetric(name);
  const text = share?.(() => registry.getMetricsAsJSON()) ?? (() => registry.metrics());
  return { registry, contentType: registry.contentType, text, ...metrics };
}
