import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { AggregatorRegistry } from 'prom-client';
import { type Config, formatUrlHost, mqtt_in_other_worker_variable } from './config.js';
import type { Log } from './db/database.js';
import { StartError } from './errors.js';
import { assertPortsFree, type Running } from './service.js';

interface Options {
  config: Config;
  /** Variables of the workers beyond those of this process. */
  env: Record<string, string>;
  log: Log;
}

const metrics_request = 'metrics?';
const respawn_ms = 1000;

/** Starts WORKERS processes on one port and replaces those that die. @throws StartError if one fails at the start */
export async function runWorkers({ config, env, log }: Options): Promise<Running> {
  // reported once, here, and not by every worker
  await assertPortsFree(config);
  const registry = new AggregatorRegistry();
  let stopping = false;
  cluster.on('message', (worker, message: unknown) => {
    if (message !== metrics_request) return;
    const answer = (text: string) => worker.isConnected() && worker.send({ metrics: text });
    registry.clusterMetrics().then(answer, (error: unknown) => {
      log.warn({ err: error }, 'metrics of the workers failed');
      answer('');
    });
  });
  // only the first worker, or its replacement, runs the broker
  const fork = async (place: number): Promise<Worker> => {
    const worker = cluster.fork({ ...env, [mqtt_in_other_worker_variable]: place === 0 ? '' : '1' });
    const ended = once(worker, 'exit').then(() => undefined);
    const listening = await Promise.race([once(worker, 'listening'), ended]);
    if (listening === undefined) throw new StartError('a worker did not start');
    void ended.then(() => replace(worker, place));
    return worker;
  };
  const replace = async (worker: Worker, place: number): Promise<void> => {
    while (!stopping) {
      log.error({ pid: worker.process.pid }, 'a worker died; starting another');
      await sleep(respawn_ms);
      if (stopping || (await fork(place).catch(() => undefined)) !== undefined) return;
    }
  };
  const stop = async () => {
    stopping = true;
    const workers = Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined);
    await Promise.all(
      workers.map((worker) => {
        const exited = once(worker, 'exit');
        worker.process.kill('SIGTERM');
        return exited;
      }),
    );
  };
  try {
    await Promise.all(Array.from({ length: config.workers }, (_, place) => fork(place)));
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: `http://${formatUrlHost(config.host)}:${config.port}`, stop };
}

/** In a worker: requests the sum of all workers' metrics from the primary process. */
export function collectClusterMetrics(): () => Promise<string> {
  return async () => {
    const answered = once(process, 'message') as Promise<[unknown]>;
    process.send?.(metrics_request);
    for (let next = answered; ; next = once(process, 'message') as Promise<[unknown]>) {
      const [message] = await next;
      if (typeof message === 'object' && message !== null && 'metrics' in message) return String(message.metrics);
    }
  };
}
