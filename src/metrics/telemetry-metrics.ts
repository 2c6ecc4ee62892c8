import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { CommandMetrics } from '../commands/delivery.js';
import type { StateMetrics } from '../device-state/store.js';
import type { BrokerMetrics } from '../mqtt/broker.js';
import { refusals } from '../mqtt/protocol/connect-packet.js';
import { commandStatuses } from '../resources/command.js';
import { stateChanges } from '../resources/device-state.js';
import type { IngestMetrics } from '../streams/ingest.js';
import type { SummaryMetrics } from '../summaries/job.js';
import { request_buckets } from './request-metrics.js';

/** Declares the metrics of the ingest of streams. */
export function createIngestMetrics(registry: Registry): IngestMetrics {
  const registers = [registry];
  const stored = new Counter({ name: 'streams_stored_total', help: 'Streams stored', registers });
  const ingest = new Histogram({
    name: 'streams_ingest_seconds',
    help: 'Time from receiving streams until they are durable',
    buckets: request_buckets,
    registers,
  });
  const batch = new Histogram({
    name: 'streams_group_commit_jobs',
    help: 'Requests and publishes in one write',
    buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    registers,
  });
  return {
    stored: (count) => stored.inc(count),
    batch: (jobs) => batch.observe(jobs),
    ingested: (milliseconds) => ingest.observe(milliseconds / 1000),
  };
}

/** Declares the metrics of the summaries of streams. */
export function createSummaryMetrics(registry: Registry): SummaryMetrics {
  const registers = [registry];
  const until = new Gauge({
    name: 'stream_summaries_until_timestamp_seconds',
    help: 'Hours before this time are summarised; 0 until those of the history are, and in processes that summarise none',
    registers,
    aggregator: 'max',
  });
  const summarized = new Counter({
    name: 'stream_summaries_streams_total',
    help: 'Streams summarised, without those of hours that were summarised before',
    registers,
  });
  return {
    until: (at = 0) => until.set(at),
    summarized: (count) => summarized.inc(count),
  };
}

/** Declares the metrics of the MQTT broker and the bridge. */
export function createBrokerMetrics(registry: Registry): BrokerMetrics {
  const registers = [registry];
  const connections = new Gauge({
    name: 'mqtt_connections',
    help: 'MQTT connections that have logged in',
    registers,
  });
  const published = new Counter({ name: 'mqtt_published_total', help: 'MQTT messages accepted', registers });
  const dropped = new Counter({
    name: 'mqtt_dropped_total',
    help: 'MQTT messages not stored, or not delivered to a subscriber',
    labelNames: ['reason', 'field'],
    registers,
  });
  const refused = new Counter({
    name: 'mqtt_logins_refused_total',
    help: 'MQTT logins refused, at an external broker too',
    labelNames: ['reason'],
    registers,
  });
  for (const reason of Object.keys(refusals)) refused.inc({ reason }, 0);
  return {
    connections: (count) => connections.set(count),
    published: () => published.inc(),
    refused: (reason) => refused.inc({ reason }),
    dropped: (reason, field) => dropped.inc(field === undefined ? { reason } : { reason, field }),
  };
}

/** Declares the metrics of commands. */
export function createCommandMetrics(registry: Registry): CommandMetrics {
  const entered = new Counter({
    name: 'commands_total',
    help: 'Commands that entered a state',
    labelNames: ['status'],
    registers: [registry],
  });
  for (const status of commandStatuses) entered.inc({ status }, 0);
  return { entered: (status, count) => entered.inc({ status }, count) };
}

/** Declares the metrics of the state of devices. */
export function createDeviceStateMetrics(registry: Registry): StateMetrics {
  const changes = new Counter({
    name: 'device_state_changes_total',
    help: 'Changes of the state of devices',
    labelNames: ['type'],
    registers: [registry],
  });
  for (const type of stateChanges) changes.inc({ type }, 0);
  return { changed: (type, count) => changes.inc({ type }, count) };
}
