import type { RequestHandler } from 'express';
import { AggregatorRegistry, collectDefaultMetrics, Histogram, Registry } from 'prom-client';
import { localsOf } from './call.js';

/** What the service counts, as Prometheus text. */
export interface Metrics {
  registry: Registry;
  contentType: string;
  text(): Promise<string>;
  /** Measures every request by method, path pattern and status. */
  measure: RequestHandler;
}

/** @param collect where the text comes from if not from this process alone */
export function createMetrics(collect?: () => Promise<string>): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const duration = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time from the request to the end of the answer',
    labelNames: ['method', 'route', 'status'],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
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
    measure(request, response, next) {
      const begun = performance.now();
      response.once('close', () => {
        const route = localsOf(response).route ?? 'other';
        duration.observe(
          { method: request.method, route, status: response.statusCode },
          (performance.now() - begun) / 1000,
        );
      });
      next();
    },
  };
}
