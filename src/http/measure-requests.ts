import type { RequestHandler } from 'express';
import type { RequestMetrics } from '../metrics/request-metrics.js';
import { localsOf } from './context.js';

/** Measures every request by method, path pattern, status and application code. */
export function requestMeter(metrics: RequestMetrics): RequestHandler {
  return (request, response, next) => {
    metrics.begun();
    response.once('close', () => {
      const { started_at_ms, answered_at_ms = performance.now(), route = 'other', code = '' } = localsOf(response);
      const seconds = (answered_at_ms - started_at_ms) / 1000;
      metrics.ended({ method: request.method, route, status: response.statusCode, code, seconds });
    });
    next();
  };
}
