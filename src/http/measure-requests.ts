import type { RequestHandler } from 'express';
import { localsOf } from './context.js';

/** An answered request; without `code` the application code is empty. */
export interface MeasuredRequest {
  method: string;
  route: string;
  status: number;
  code: number | '';
  seconds: number;
}

/** Measures requests from their arrival to the end of the answer. */
export interface RequestMetrics {
  begun(): void;
  ended(request: MeasuredRequest): void;
}

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
