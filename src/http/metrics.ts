import type { RequestHandler } from 'express';
import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { BrokerMetrics } from '../mqtt/broker.js';
import type { IngestMetrics } from '../telemetry/ingest.js';
import { localsOf } from './context.js';

/** The Prometheus metrics of this process. */
export interface Metrics {
  registry: Registry;
  contentType: string;
  text(): Promise<string>;
  /** Measures every request by method, path pattern and status. */
  measure: RequestHandler;
  telemetry: IngestMetrics;
  mqtt: BrokerMetrics;
}

/** @param collect returns the metrics of all processes, if there are several */
export function createMetrics(collect?: () => Promise<string>): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const duration = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time from the request to the end of the answer',
    labelNames: ['method', 'route', 'status', 'code'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers: [registry],
  });
  const stored = new Counter({ name: 'streams_stored_total', help: 'Streams stored', registers: [registry] });
  const batch = new Histogram({
    name: 'streams_group_commit_jobs',
    help: 'Requests and publishes that one write has stored together',
    buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    registers: [registry],
  });
  const ingest = new Histogram({
    name: 'streams_ingest_seconds',
    help: 'Time from handing in streams until they are durable',
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers: [registry],
  });
  const connections = new Gauge({
    name: 'mqtt_connections',
    help: 'MQTT connections that have logged in',
    registers: [registry],
  });
  const published = new Counter({
    name: 'mqtt_published_total',
    help: 'MQTT messages accepted',
    registers: [registry],
  });
  const dropped = new Counter({
    name: 'mqtt_dropped_total',
    help: 'MQTT messages that were neither stored nor delivered',
    labelNames: ['reason', 'field'],
    registers: [registry],
  });
  if (collect !== undefined) {
    new AggregatorRegistry(); // makes this worker answer the primary process
    AggregatorRegistry.setRegistries(registry);
  }
  return {
    registry,
    contentType: registry.contentType,
    text: collect ?? (() => registry.metrics()),
    telemetry: {
      stored: (count) => stored.inc(count),
      batch: (jobs) => batch.observe(jobs),
      ingested: (milliseconds) => ingest.observe(milliseconds / 1000),
    },
    mqtt: {
      connections: (count) => connections.set(count),
      published: () => published.inc(),
      dropped: (reason, field) => dropped.inc(field === undefined ? { reason } : { reason, field }),
    },
    measure(request, response, next) {
      response.once('close', () => {
        const { started_at_ms, route = 'other', code = '' } = localsOf(response);
        const labels = { method: request.method, route, status: response.statusCode, code };
        duration.observe(labels, (performance.now() - started_at_ms) / 1000);
      });
      next();
    },
  };
}
