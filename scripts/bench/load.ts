/**
 * The requests of a measurement; the paths are used in a cycle. In `body`, `<n>` is replaced by the number of the request
 * and `<round>` by the number of earlier requests to the same path, both from 0.
 */
export interface Requests {
  method: 'GET' | 'POST' | 'PUT';
  headers: Readonly<Record<string, string>>;
  paths: readonly string[];
  body?: string;
}

export interface Load {
  url: string;
  requests: Requests;
  connections: number;
  seconds: number;
}

export interface LoadResult {
  requests: number;
  per_second: number;
  p50_ms: number;
  p99_ms: number;
  /** Responses other than 2xx, and broken connections. */
  failed: number;
}

export interface LoadGenerator {
  name: string;
  /** Sends the next request of a connection as soon as its response has arrived; uses one thread. */
  run(load: Load): Promise<LoadResult>;
}

const placeholder = /<(n|round)>/;

/** Splits a body into literal text (even positions) and names of placeholders (odd positions). */
export function splitBody(body: string): string[] {
  return body.split(placeholder);
}
