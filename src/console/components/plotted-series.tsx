import 'uplot/dist/uPlot.min.css';
import { useEffect, useRef } from 'react';
import UPlot, { type AlignedData, type Options } from 'uplot';
import type { Bucket, Series } from '../api/series.js';

const height = 300;
/** Legible on light and dark ground. */
const colours = [
  '#3178d6',
  '#d0641c',
  '#2b9a5b',
  '#b0489f',
  '#8a7a12',
  '#d6455d',
  '#1795a8',
  '#7d63d3',
  '#6c8a1f',
  '#a5682a',
];

interface PlottedSeriesProps {
  series: Series;
  paths: readonly string[];
  label: string;
}

/** Draws the average of each path as a line, with the range from minimum to maximum behind it. */
export function PlottedSeries({ series, paths, label }: PlottedSeriesProps) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>(undefined);
  const names = paths.join(',');

  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const created = new UPlot(buildOptions(element, names.split(',')), [[]], element);
    plot.current = created;
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
    };
  }, [names]);

  useEffect(() => {
    plot.current?.setData(toColumns(series, names.split(',')));
    plot.current?.setScale('x', { min: series.metadata.at_from, max: series.metadata.at_to });
  }, [series, names]);

  const points = series.result.length;
  return (
    <div
      ref={container}
      className="chart"
      role="img"
      aria-label={`${label}: ${points} points of ${paths.join(', ')}`}
    />
  );
}

function buildOptions(element: HTMLElement, paths: readonly string[]): Options {
  const { color } = getComputedStyle(element);
  const axis = {
    stroke: color,
    grid: { stroke: 'rgb(128 128 128 / 25%)' },
    ticks: { stroke: 'rgb(128 128 128 / 25%)' },
  };
  const colourOf = (index: number) => colours[index % colours.length] ?? color;
  return {
    width: element.clientWidth,
    height,
    axes: [axis, axis],
    scales: { x: { time: true, auto: false } },
    series: [
      {},
      ...paths.flatMap((path, index) => [
        { label: path, stroke: colourOf(index), width: 2, spanGaps: false, points: { size: 5 } },
        { label: `${path} min`, class: 'bound', stroke: 'transparent', points: { show: false } },
        { label: `${path} max`, class: 'bound', stroke: 'transparent', points: { show: false } },
      ]),
    ],
    bands: paths.map((_path, index) => ({ series: [index * 3 + 3, index * 3 + 2], fill: `${colourOf(index)}33` })),
    legend: { show: true, live: true },
  };
}

/** Turns buckets into columns; a bucket that is missing is a gap. */
function toColumns({ result, metadata: { every } }: Series, paths: readonly string[]): AlignedData {
  const buckets: (Bucket | { at: number })[] = [];
  for (const bucket of result) {
    const previous = buckets.at(-1);
    if (previous !== undefined && bucket.at - previous.at > max_gap_buckets * every)
      buckets.push({ at: previous.at + every });
    buckets.push(bucket);
  }
  const valuesOf = (path: string, aggregate: 'avg' | 'min' | 'max') =>
    buckets.map((bucket) => {
      const values = (bucket as Bucket)[path];
      return typeof values === 'object' ? (values[aggregate] ?? null) : null;
    });
  const columns = paths.flatMap((path) => [valuesOf(path, 'avg'), valuesOf(path, 'min'), valuesOf(path, 'max')]);
  return [buckets.map(({ at }) => at), ...columns];
}

/** Longer silence interrupts the line. */
const max_gap_buckets = 20;
