import { AggregatorRegistry, type MetricObjectWithValues, type MetricValue } from 'prom-client';

/** The metrics of one process at one moment. */
export type MetricsSnapshot = MetricObjectWithValues<MetricValue<string>>[];

/** Creates the metrics of all workers as one text, for the primary process. */
export function createWorkerMetrics() {
  const latest = new Map<number, MetricsSnapshot>();
  let retired: MetricsSnapshot = [];
  return {
    /** Replaces the snapshot of a worker. */
    record: (worker_id: number, snapshot: MetricsSnapshot) => void latest.set(worker_id, snapshot),
    /** Keeps the counters of a worker that has died, so that sums do not fall; its gauges are dropped. */
    async retire(worker_id: number): Promise<void> {
      const counters = latest.get(worker_id)?.filter(({ type }) => ['counter', 'histogram'].includes(String(type)));
      latest.delete(worker_id);
      // not awaited before the assignment: two workers may die at once
      if (counters !== undefined) retired = [...retired, ...counters];
      const summed = retired;
      const sum = await AggregatorRegistry.aggregate([summed]).getMetricsAsJSON();
      if (retired === summed) retired = sum;
    },
    /** Sums the latest snapshots and the counters of dead workers. */
    text: () => AggregatorRegistry.aggregate([...latest.values(), retired]).metrics(),
  };
}
