import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { autocannonLoad } from './autocannon.js';
import { wrkLoad } from './wrk.js';

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

/** wrk where it is on PATH, which leaves more of the machine to the servers, or else autocannon in this process. */
export async function findGenerator(folder: string, wanted: string | undefined): Promise<Generator> {
  for (const bin of (process.env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const path = join(bin, 'wrk');
    const usable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (usable && wanted !== 'autocannon') return { name: 'wrk', run: (load) => wrkLoad(path, folder, load) };
  }
  if (wanted === 'wrk') throw new Error('wrk is not on PATH');
  return { name: 'autocannon', run: autocannonLoad };
}

const marks = /<(n|round)>/;

/** A body in pieces: every second one is the name of a mark. */
export function piecesOf(body: string): string[] {
  return body.split(marks);
}
