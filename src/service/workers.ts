import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, formatOrigin } from '../config.js';
import type { Log } from '../db/database.js';
import { StartError } from '../errors.js';
import { coalesce } from '../lib/coalesce.js';
import type { ShareMetrics } from '../metrics/metrics.js';
import { createWorkerMetrics, type MetricsSnapshot } from '../metrics/worker-metrics.js';
import type { ShareRevocations } from '../objects/api-keys.js';
import { assertPortsFree, type Running } from './service.js';

interface Options {
  config: Config;
  /** Variables of the workers beyond those of this process. */
  env: Record<string, string>;
  log: Log;
}

/** A scrape has reached a worker, which requests the metrics of all workers. */
interface MetricsRequest {
  metrics_request: number;
}

interface MetricsReply {
  metrics_reply: number;
  text: string;
}

interface SnapshotMessage {
  snapshot: MetricsSnapshot;
}

/** A key was revoked by a worker; every worker gets it from the primary process. */
interface RevocationMessage {
  revoked: string;
}

/** The primary process requests the metrics of a worker. */
const snapshot_request = 'snapshot';
/** A worker that does not answer in time counts with its last snapshot. */
const snapshot_limit_ms = 1000;
/** At most so much of the counters of a killed worker is lost. */
const snapshot_period_ms = 5000;
const respawn_ms = 1000;
/** Other workers refuse a revoked key within 5 s, whether they hear of it or not. */
const revocation_limit_ms = 500;
/** Argument of a worker without a broker. */
const broker_elsewhere = '--broker-elsewhere';

/** Reports in a worker whether another worker runs the MQTT broker. */
export function isBrokerElsewhere(): boolean {
  return process.argv.includes(broker_elsewhere);
}

/** Starts WORKERS processes on one port and replaces those that die. @throws StartError if one fails at the start */
export async function runWorkers({ config, env, log }: Options): Promise<Running> {
  // reported once, here, and not by every worker
  const port = await assertPortsFree(config);
  const metrics = collectWorkerMetrics(log);
  forwardRevocations();
  let stopping = false;
  // only the first worker, or its replacement, runs the broker
  const fork = async (place: number): Promise<Worker> => {
    cluster.setupPrimary({ args: place === 0 ? [] : [broker_elsewhere] });
    const worker = cluster.fork({ ...env, PORT: String(port) });
    const ended = new Promise<undefined>((resolve) => worker.once('exit', () => resolve(undefined)));
    worker.on('error', (error) => log.warn({ err: error }, 'a worker cannot be reached'));
    const listening = await Promise.race([once(worker, 'listening'), ended]);
    if (listening === undefined) throw new StartError('a worker did not start');
    ended.then(() => replace(worker, place)).catch((error) => log.error({ err: error }, 'a worker is not replaced'));
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
    metrics.stop();
    const workers = Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined);
    await Promise.all(
      workers.map((worker) => {
        worker.process.kill('SIGTERM');
        return once(worker, 'exit');
      }),
    );
  };
  try {
    await Promise.all(Array.from({ length: config.workers }, (_, place) => fork(place)));
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    url: formatOrigin(config, port),
    stop,
    async reloadFiles() {
      for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGHUP');
    },
  };
}

const hasMember = <Name extends string>(message: unknown, name: Name): message is Record<Name, unknown> =>
  typeof message === 'object' && message !== null && name in message;

/** In the primary process: collects the metrics of all workers, and answers those that are scraped. */
function collectWorkerMetrics(log: Log): { stop(): void } {
  const metrics = createWorkerMetrics();
  const refreshAll = coalesce(async () => {
    await Promise.all(Object.values(cluster.workers ?? {}).map((worker) => worker && refresh(worker)));
  });
  const warn = (error: unknown) => log.warn({ err: error }, 'metrics of the workers failed');
  const reply = async (worker: Worker, { metrics_request }: MetricsRequest): Promise<void> => {
    await refreshAll();
    const text = await metrics.text().catch((error: unknown) => {
      warn(error);
      return '';
    });
    if (worker.isConnected()) worker.send({ metrics_reply: metrics_request, text } satisfies MetricsReply);
  };
  cluster.on('message', (worker, message: unknown) => {
    if (hasMember(message, 'snapshot')) metrics.record(worker.id, (message as SnapshotMessage).snapshot);
    else if (hasMember(message, 'metrics_request')) reply(worker, message as MetricsRequest).catch(warn);
  });
  cluster.on('exit', (worker) => void metrics.retire(worker.id).catch(warn));
  const timer = setInterval(() => refreshAll().catch(warn), snapshot_period_ms).unref();
  return { stop: () => clearInterval(timer) };
}

/** Requests the snapshot of a worker; resolves when it was received, or will not be. */
function refresh(worker: Worker): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      worker.off('message', onMessage).off('exit', finish);
      resolve();
    };
    const onMessage = (message: unknown) => {
      if (hasMember(message, 'snapshot')) finish();
    };
    const timer = setTimeout(finish, snapshot_limit_ms);
    worker.on('message', onMessage).on('exit', finish);
    if (worker.isConnected()) worker.send(snapshot_request);
    else finish();
  });
}

/** In the primary process: sends a revoked key to all workers, last to the one that has revoked it. */
function forwardRevocations(): void {
  cluster.on('message', (sender, message: unknown) => {
    if (!hasMember(message, 'revoked')) return;
    const others = Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined && worker !== sender);
    for (const worker of [...others, sender])
      if (worker?.isConnected() === true) worker.send(message as RevocationMessage);
  });
}

/** In a worker: connects its keyring with those of the others. */
export const publishRevocations: ShareRevocations = (forget) => {
  const waiting = new Map<string, () => void>();
  process.on('message', (message: unknown) => {
    if (!hasMember(message, 'revoked')) return;
    const { revoked } = message as RevocationMessage;
    forget(revoked);
    waiting.get(revoked)?.();
  });
  return async (revoked) => {
    const told = new Promise<void>((resolve) => waiting.set(revoked, resolve));
    process.send?.({ revoked } satisfies RevocationMessage);
    await Promise.race([told, sleep(revocation_limit_ms, undefined, { ref: false })]);
    waiting.delete(revoked);
  };
};

/** In a worker: answers the primary process. @returns a function that requests the metrics of all workers from it */
export const publishMetrics: ShareMetrics = (readSnapshot) => {
  const replies = new Map<number, (text: string) => void>();
  let requests = 0;
  process.on('message', (message: unknown) => {
    if (message === snapshot_request) {
      readSnapshot()
        .then((snapshot) => process.connected && process.send?.({ snapshot } satisfies SnapshotMessage))
        // the primary process takes the last one
        .catch(() => undefined);
    } else if (hasMember(message, 'metrics_reply')) {
      const { metrics_reply, text } = message as MetricsReply;
      replies.get(metrics_reply)?.(text);
      replies.delete(metrics_reply);
    }
  });
  return () =>
    new Promise((resolve) => {
      const metrics_request = ++requests;
      replies.set(metrics_request, resolve);
      process.send?.({ metrics_request } satisfies MetricsRequest);
    });
};
