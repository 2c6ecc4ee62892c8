import { setMaxListeners } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { summarizeLatencies, type Throughput } from './load.js';

interface StreamLoad {
  url: string;
  headers: Readonly<Record<string, string>>;
  /** Used in a cycle. */
  paths: readonly string[];
  /** Used in a cycle, one in each round of the paths. */
  bodies: readonly string[];
  connections: number;
  /** Requests a second at most; default: as many as are answered. */
  per_second?: number;
  /** Ends the load when it aborts. */
  signal: AbortSignal;
}

/**
 * Posts until `signal` aborts, at a fixed rate or as fast as it is answered. @returns latencies that include the time that a
 * request waited for a connection @throws Error for an answer other than 200
 */
export async function postStreams(load: StreamLoad): Promise<Throughput> {
  const { connections, per_second, signal } = load;
  const agent = new Agent({ keepAlive: true, maxSockets: connections, scheduling: 'fifo' });
  setMaxListeners(connections + 1, signal);
  const latencies_ms: number[] = [];
  const begun_at = performance.now();
  let sent = 0;
  const clients = Array.from({ length: connections }, async () => {
    while (!signal.aborted) {
      const number = sent++;
      const due_at = per_second === undefined ? performance.now() : begun_at + (number * 1000) / per_second;
      const wait_ms = due_at - performance.now();
      if (wait_ms > 0) await sleep(wait_ms, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await post(load, agent, number);
      latencies_ms.push(performance.now() - due_at);
    }
  });
  await Promise.all(clients);
  const seconds = (performance.now() - begun_at) / 1000;
  agent.destroy();
  return summarizeLatencies(latencies_ms, seconds);
}

function post({ url, headers, paths, bodies }: StreamLoad, agent: Agent, number: number): Promise<void> {
  const path = paths[number % paths.length] ?? '/';
  const body = bodies[Math.floor(number / paths.length) % bodies.length] ?? '';
  return new Promise((resolve, reject) => {
    const sent = request(url + path, { method: 'POST', agent, headers: { ...headers, 'Content-Length': body.length } });
    sent.on('error', reject);
    sent.on('response', (response) => {
      response.resume();
      response.on('error', reject);
      response.on('end', () => {
        if (response.statusCode === 200) resolve();
        else reject(new Error(`POST ${path}: ${response.statusCode}`));
      });
    });
    sent.end(body);
  });
}
