import { Gauge, Histogram, type Registry } from 'prom-client';
import type { RequestMetrics } from '../http/measure-requests.js';

/** Upper bounds in seconds, up to the time limit of a request. */
export const request_buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** Declares the metrics of the HTTP interface. */
export function createRequestMetrics(registry: Registry): RequestMetrics {
  const duration = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time from the request to the end of the answer, by path pattern and application code',
    labelNames: ['method', 'route', 'status', 'code'],
    buckets: request_buckets,
    registers: [registry],
  });
  const inFlight = new Gauge({
    name: 'http_requests_in_flight',
    help: 'Requests in progress, live feeds included',
    registers: [registry],
  });
  return {
    begun: () => inFlight.inc(),
    ended({ seconds, ...labels }) {
      inFlight.dec();
      duration.observe(labels, seconds);
    },
  };
}
