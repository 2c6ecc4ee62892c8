import { Gauge, Histogram, type Registry } from 'prom-client';
import type { EvaluationMetrics } from '../alarms/observe.js';
import type { WatchMetrics } from '../alarms/watch.js';
import { request_buckets } from './request-metrics.js';

/** Declares the metrics of alarm rules and alarms. */
export function createAlarmMetrics(registry: Registry): EvaluationMetrics & WatchMetrics {
  const registers = [registry];
  const evaluation = new Histogram({
    name: 'alarms_evaluation_seconds',
    help: 'Time that alarm rules add to a batch of streams of devices that they cover',
    buckets: request_buckets,
    registers,
  });
  let watched_until: number | undefined;
  new Gauge({
    name: 'alarms_lag_seconds',
    help: 'Lag of deadlines and of changed rules and devices, normally below 2; 0 on instances that do not watch them',
    registers,
    aggregator: 'max',
    collect() {
      this.set(watched_until === undefined ? 0 : Math.max(0, (Date.now() - watched_until) / 1000));
    },
  });
  return {
    evaluated: (milliseconds) => evaluation.observe(milliseconds / 1000),
    watchedUntil(moment) {
      watched_until = moment;
    },
  };
}
