import 'uplot/dist/uPlot.min.css';
import { useEffect, useRef } from 'react';
import UPlot, { type AlignedData, type Options } from 'uplot';
import { formatNumber, formatTime } from '../lib/format.js';
import { useScheme } from '../ui/theme.js';
import type { Bucket, Series } from './series.js';

const height = 300;
const minute_s = 60;
const day_s = 86_400;
/** Longer silence interrupts the line. */
const max_gap_buckets = 20;
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
  /** IANA name of the zone of all times. */
  timeZone: string;
}

/** Draws the average of each path as a line, with the range from minimum to maximum behind it. */
export function PlottedSeries({ series, paths, label, timeZone }: PlottedSeriesProps) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>(undefined);
  const names = paths.join(',');
  const scheme = useScheme();

  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours are read from the style sheet
  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const created = new UPlot(buildOptions(element, names.split(','), timeZone), [[]], element);
    plot.current = created;
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
    };
  }, [names, timeZone, scheme]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new chart has no data yet
  useEffect(() => {
    plot.current?.setData(toColumns(series, names.split(',')));
    plot.current?.setScale('x', { min: series.metadata.at_from, max: series.metadata.at_to });
  }, [series, names, timeZone, scheme]);

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

function buildOptions(element: HTMLElement, paths: readonly string[], timeZone: string): Options {
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
    axes: [
      { ...axis, values: createTickFormat(timeZone) },
      { ...axis, values: (_plot, ticks) => ticks.map(formatNumber), size: measureLabels },
    ],
    tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), timeZone),
    scales: { x: { time: true, auto: false } },
    series: [
      { label: 'Time', value: (_plot, seconds) => (seconds === null ? '–' : formatTime(seconds, timeZone)) },
      ...paths.flatMap((path, index) => [
        {
          label: path,
          stroke: colourOf(index),
          width: 2,
          spanGaps: false,
          points: { size: 5 },
          value: (_plot: UPlot, value: number | null) => (value === null ? '–' : formatNumber(value)),
        },
        { label: `${path} min`, class: 'bound', stroke: 'transparent', points: { show: false } },
        { label: `${path} max`, class: 'bound', stroke: 'transparent', points: { show: false } },
      ]),
    ],
    bands: paths.map((_path, index) => ({ series: [index * 3 + 3, index * 3 + 2], fill: `${colourOf(index)}33` })),
    legend: { show: true, live: true },
  };
}

/** The width that the longest label of an axis takes, as a fixed one would cut it off. @returns CSS pixels */
function measureLabels(plot: UPlot, labels: string[] | null, axis_index: number): number {
  const { ticks, gap = 0, font = [] } = (plot.axes[axis_index] ?? {}) as UPlot.Axis;
  // uPlot keeps the font in the pixels of the canvas
  plot.ctx.font = String([font].flat()[0] ?? plot.ctx.font);
  const widths = (labels ?? []).map((label) => plot.ctx.measureText(label).width / devicePixelRatio);
  return Math.ceil((ticks?.size ?? 0) + gap + Math.max(0, ...widths));
}

/** Creates the labels of the time axis: the time of day, and the date where a day begins. */
function createTickFormat(timeZone: string): UPlot.Axis.DynamicValues {
  const time = { hour: '2-digit', minute: '2-digit', timeZone } as const;
  const hourFormat = new Intl.DateTimeFormat(undefined, time);
  const secondFormat = new Intl.DateTimeFormat(undefined, { ...time, second: '2-digit' });
  const dayFormat = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', timeZone });
  return (_plot, ticks, _axis, _space, step_s) =>
    ticks.map((seconds, index) => {
      const date = new Date(seconds * 1000);
      const day = dayFormat.format(date);
      if (step_s >= day_s) return day;
      const label = (step_s < minute_s ? secondFormat : hourFormat).format(date);
      const previous = ticks[index - 1];
      return previous === undefined || dayFormat.format(new Date(previous * 1000)) !== day ? `${label}\n${day}` : label;
    });
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
