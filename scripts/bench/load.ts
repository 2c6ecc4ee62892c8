/**
 * What is sent, in turn: the paths over and over. In `body`, `<n>` stands for the number of the request and `<round>`
 * for how often its path has been sent before, both from 0.
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

export interface Measured {
  requests: number;
  per_second: number;
  p50_ms: number;
  p99_ms: number;
  /** Answers other than 2xx and connections that broke. */
  failed: number;
}

export interface Generator {
  name: string;
  /** Sends as fast as answers come, on all connections, from one thread. */
  run(load: Load): Promise<Measured>;
}

const marks = /<(n|round)>/;

/** A body in pieces: every second one is the name of a mark. */
export function piecesOf(body: string): string[] {
  return body.split(marks);
}
