import type { CommandMetrics } from '../commands/delivery.js';
import type { StateMetrics } from '../device-state/store.js';
import type { RequestMetrics } from '../http/measure-requests.js';
import type { BrokerMetrics } from '../mqtt/broker.js';
import { refusals } from '../mqtt/protocol/connect-packet.js';
import { commandStatuses } from '../resources/command.js';
import { stateChanges } from '../resources/device-state.js';
import type { IngestMetrics } from '../streams/ingest.js';
import type { SummaryMetrics } from '../summaries/job.js';
import { type MetricFactory, request_buckets } from './metric-factory.js';

/** Declares the metrics of the HTTP interface. */
export function createRequestMetrics({ gauge, histogram }: MetricFactory): RequestMetrics {
  const help = 'Time from the request to the end of the answer, by path pattern and application code';
  const labels = ['method', 'route', 'status', 'code'] as const;
  const duration = histogram('http_request_duration_seconds', help, request_buckets, ...labels);
  const inFlight = gauge('http_requests_in_flight', 'Requests in progress, live feeds included');
  return {
    begun: () => inFlight.inc(),
    ended({ seconds, ...measured }) {
      inFlight.dec();
      duration.observe(measured, seconds);
    },
  };
}

/** Declares the metrics of the ingest of streams. */
export function createIngestMetrics({ counter, histogram }: MetricFactory): IngestMetrics {
  const stored = counter('streams_stored_total', 'Streams stored');
  const help = 'Time from receiving streams until they are durable';
  const ingest = histogram('streams_ingest_seconds', help, request_buckets);
  const sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
  const batch = histogram('streams_group_commit_jobs', 'Requests and publishes in one write', sizes);
  return {
    stored: (count) => stored.inc(count),
    batch: (jobs) => batch.observe(jobs),
    ingested: (milliseconds) => ingest.observe(milliseconds / 1000),
  };
}

/** Declares the metrics of the summaries of streams. */
export function createSummaryMetrics({ counter, gauge }: MetricFactory): SummaryMetrics {
  const until = gauge(
    'stream_summaries_until_timestamp_seconds',
    'Hours before this time are summarised; 0 until those of the history are, and in processes that summarise none',
    { aggregator: 'max' },
  );
  const summarized = counter(
    'stream_summaries_streams_total',
    'Streams summarised, without those of hours that were summarised before',
  );
  return {
    until: (at = 0) => until.set(at),
    summarized: (count) => summarized.inc(count),
  };
}

/** Declares the metrics of the MQTT broker and the bridge. */
export function createBrokerMetrics({ counter, gauge }: MetricFactory): BrokerMetrics {
  const connections = gauge('mqtt_connections', 'MQTT connections that have logged in');
  const published = counter('mqtt_published_total', 'MQTT messages accepted');
  const lost = 'MQTT messages not stored, or not delivered to a subscriber';
  const dropped = counter('mqtt_dropped_total', lost, 'reason', 'field');
  const refused = counter('mqtt_logins_refused_total', 'MQTT logins refused, at an external broker too', 'reason');
  for (const reason of Object.keys(refusals)) refused.inc({ reason }, 0);
  return {
    connections: (count) => connections.set(count),
    published: () => published.inc(),
    refused: (reason) => refused.inc({ reason }),
    dropped: (reason, field) => dropped.inc(field === undefined ? { reason } : { reason, field }),
  };
}

/** Declares the metrics of commands. */
export function createCommandMetrics({ counter }: MetricFactory): CommandMetrics {
  const entered = counter('commands_total', 'Commands that entered a state', 'status');
  for (const status of commandStatuses) entered.inc({ status }, 0);
  return { entered: (status, count) => entered.inc({ status }, count) };
}

/** Declares the metrics of the state of devices. */
export function createDeviceStateMetrics({ counter }: MetricFactory): StateMetrics {
  const changes = counter('device_state_changes_total', 'Changes of the state of devices', 'type');
  for (const type of stateChanges) changes.inc({ type }, 0);
  return { changed: (type, count) => changes.inc({ type }, count) };
}
