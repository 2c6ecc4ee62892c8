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

/** Rate and latencies of answered requests. */
export interface Throughput {
  requests: number;
  per_second: number;
  p50_ms: number;
  p99_ms: number;
}

export interface LoadResult extends Throughput {
  /** Responses other than 2xx, and broken connections. */
  failed: number;
}

export interface LoadGenerator {
  name: string;
  /** Sends the next request of a connection as soon as its response has arrived; uses one thread. */
  run(load: Load): Promise<LoadResult>;
}

/** Summarizes the latencies of the requests that were answered within `seconds`. */
export function summarizeLatencies(latencies_ms: readonly number[], seconds: number): Throughput {
  const sorted = latencies_ms.toSorted((one, other) => one - other);
  const percentile = (share: number) => sorted[Math.floor(sorted.length * share)] ?? Number.NaN;
  const requests = sorted.length;
  return { requests, per_second: requests / seconds, p50_ms: percentile(0.5), p99_ms: percentile(0.99) };
}

const placeholder = /<(n|round)>/;

/** Splits a body into literal text (even positions) and names of placeholders (odd positions). */
export function splitBody(body: string): string[] {
  return body.split(placeholder);
}
