import { type Aggregator, Counter, Gauge, Histogram, type Registry } from 'prom-client';

interface GaugeOptions<Label extends string> {
  labelNames?: Label[];
  /** Joins the values of several workers; default: their sum. */
  aggregator?: Aggregator;
  /** Sets the values when they are read. */
  collect?(gauge: Gauge<Label>): void;
}

export type MetricFactory = ReturnType<typeof createMetricFactory>;

/** Upper bounds in seconds, up to the time limit of a request. */
export const request_buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** Creates the functions that declare the metrics of a registry. */
export function createMetricFactory(registry: Registry) {
  const registers = [registry];
  return {
    counter: <Label extends string>(name: string, help: string, ...labelNames: Label[]) =>
      new Counter({ name, help, labelNames, registers }),
    gauge<Label extends string>(name: string, help: string, options: GaugeOptions<Label> = {}): Gauge<Label> {
      const { labelNames = [], aggregator = 'sum', collect } = options;
      return new Gauge<Label>({
        ...{ name, help, labelNames, aggregator, registers },
        ...(collect && {
          collect() {
            collect(this);
          },
        }),
      });
    },
    histogram: <Label extends string>(name: string, help: string, buckets: number[], ...labelNames: Label[]) =>
      new Histogram({ name, help, buckets, labelNames, registers }),
  };
}
