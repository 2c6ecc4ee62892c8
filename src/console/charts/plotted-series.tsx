import 'uplot/dist/uPlot.min.css';
import { useEffect, useRef } from 'react';
import UPlot, { type AlignedData, type Options } from 'uplot';
import type { Measure } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { useScheme } from '../ui/theme.js';
import { drawAlarms, drawEvents, drawThresholds } from './drawing.js';
import type { Mark } from './marks.js';
import { findMeasure } from './measures.js';
import { type Bucket, lengthOf, type Series } from './series.js';
import type { Threshold } from './thresholds.js';

const plot_height = 130;
const times_height = 44;
const min_drag_px = 5;
/** The same for all charts of a page, so that their times are below each other. */
const min_axis_px = 72;
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

/** The colour of a line, by its place in the chart. */
export function colourAt(index: number): string {
  return colours[index % colours.length] ?? 'currentcolor';
}

export interface PlottedSeriesProps {
  series: Series;
  paths: readonly string[];
  measures: readonly Measure[];
  marks: readonly Mark[];
  /** Those of the paths. */
  thresholds: readonly Threshold[];
  label: string;
  /** IANA name of the zone of all times. */
  timeZone: string;
  /** Charts with the same name have one cursor. */
  sync: string;
  /** Names the times below, as the last of several charts does. */
  hasTimes: boolean;
  onCursor(seconds: number | undefined): void;
  /** Absent: the span cannot be changed. */
  onZoom?(from: number, to: number): void;
}

/** Draws the average of each path as a line, with the range from minimum to maximum behind it. */
export function PlottedSeries({ series, paths, measures, marks, label, timeZone, ...props }: PlottedSeriesProps) {
  const { thresholds, sync, hasTimes, onCursor, onZoom } = props;
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>(undefined);
  const names = paths.join(',');
  const scheme = useScheme();
  const height = hasTimes ? plot_height + times_height : plot_height;
  const latest = useRef({ onCursor, onZoom, marks, thresholds });
  useEffect(() => {
    latest.current = { onCursor, onZoom, marks, thresholds };
  });
  const [min, max] = boundsOf(paths, measures);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours are read from the style sheet
  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const options = buildOptions(element, { paths: names.split(','), timeZone, sync, hasTimes, height, min, max });
    const created = new UPlot(
      {
        ...options,
        hooks: {
          drawClear: [
            (drawn) => {
              drawThresholds(drawn, latest.current.thresholds);
              drawAlarms(drawn, latest.current.marks);
            },
          ],
          draw: [(drawn) => drawEvents(drawn, latest.current.marks)],
          setCursor: [({ cursor, posToVal }) => latest.current.onCursor(timeAt(cursor.left, posToVal))],
          setSelect: [(selected) => zoom(selected, latest.current.onZoom)],
        },
      },
      [[]],
      element,
    );
    plot.current = created;
    const unlisten = listenToTouch(created, (from, to) => latest.current.onZoom?.(from, to));
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      unlisten();
      created.destroy();
    };
  }, [names, timeZone, scheme, sync, hasTimes, height, min, max]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new chart has no data yet
  useEffect(() => {
    plot.current?.setData(toColumns(series, names.split(',')));
    plot.current?.setScale('x', { min: series.metadata.at_from, max: series.metadata.at_to });
  }, [series, names, marks, thresholds, timeZone, scheme, sync, hasTimes, min, max]);

  const points = series.result.length;
  const title = paths.map((path) => findMeasure(measures, path).name).join(', ');
  return <div ref={container} className="chart" role="img" aria-label={`${label}: ${points} points of ${title}`} />;
}

function timeAt(left: number | undefined, posToVal: UPlot['posToVal']): number | undefined {
  return left === undefined || left < 0 ? undefined : Math.round(posToVal(left, 'x'));
}

/** The bounds that all paths of a chart are declared to be in. */
function boundsOf(paths: readonly string[], measures: readonly Measure[]): [number | undefined, number | undefined] {
  const declared = paths.map((path) => findMeasure(measures, path));
  const [mins, maxs] = [declared.map(({ min }) => min), declared.map(({ max }) => max)];
  const isNumber = (bound: number | undefined) => bound !== undefined;
  return [
    mins.every(isNumber) ? Math.min(...mins.filter(isNumber)) : undefined,
    maxs.every(isNumber) ? Math.max(...maxs.filter(isNumber)) : undefined,
  ];
}

/** Zooms to what was selected by a drag, and removes the selection. */
function zoom(plot: UPlot, onZoom: PlottedSeriesProps['onZoom']): void {
  const { left, width } = plot.select;
  if (width < min_drag_px) return;
  const [from, to] = [Math.floor(plot.posToVal(left, 'x')), Math.ceil(plot.posToVal(left + width, 'x'))];
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  if (to > from) onZoom?.(from, to);
}

/** Lets a finger select a span, as uPlot hears a mouse only. @returns a function that ends this */
function listenToTouch(plot: UPlot, onZoom: PlottedSeriesProps['onZoom']): () => void {
  const listeners = new AbortController();
  let start: number | undefined;
  const listen = (type: 'pointerdown' | 'pointermove' | 'pointerup' | 'pointercancel', on: (left: number) => void) =>
    plot.over.addEventListener(
      type,
      ({ pointerType, clientX }) => {
        if (pointerType !== 'mouse') on(clientX - plot.over.getBoundingClientRect().left);
      },
      { signal: listeners.signal },
    );
  const select = (left: number, width: number) =>
    plot.setSelect({ left, width, top: 0, height: plot.over.clientHeight }, false);
  listen('pointerdown', (left) => {
    start = left;
  });
  listen('pointermove', (left) => {
    if (start !== undefined) select(Math.min(start, left), Math.abs(left - start));
  });
  listen('pointerup', () => {
    start = undefined;
    zoom(plot, onZoom);
  });
  listen('pointercancel', () => {
    start = undefined;
    select(0, 0);
  });
  return () => listeners.abort();
}

interface PlotOptions extends Pick<PlottedSeriesProps, 'paths' | 'timeZone' | 'sync' | 'hasTimes'> {
  height: number;
  min: number | undefined;
  max: number | undefined;
}

function buildOptions(
  element: HTMLElement,
  { paths, timeZone, sync, hasTimes, height, min, max }: PlotOptions,
): Options {
  const { color } = getComputedStyle(element);
  const lines = { stroke: 'rgb(128 128 128 / 25%)' };
  const axis = { stroke: color, grid: lines, ticks: lines };
  const times: UPlot.Axis = hasTimes
    ? { values: createTickFormat(timeZone), size: times_height }
    : { values: (_plot, ticks) => ticks.map(() => ''), size: 0, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height,
    padding: [8, 8, hasTimes ? 0 : 8, 0],
    axes: [
      { ...axis, ...times },
      { ...axis, values: (_plot, ticks) => ticks.map((tick) => formatNumber(tick)), size: measureLabels },
    ],
    tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), timeZone),
    cursor: { sync: { key: sync }, drag: { x: true, y: false, setScale: false } },
    scales: {
      x: { time: true, auto: false },
      y: {
        range: (_plot, low: number | null, high: number | null) => {
          const [lowest, highest] = [low ?? 0, high ?? 1];
          const [bottom, top] = UPlot.rangeNum(lowest, highest, 0.1, true);
          return [Math.min(min ?? bottom ?? 0, lowest), Math.max(max ?? top ?? 1, highest)];
        },
      },
    },
    series: [
      {},
      ...paths.flatMap((_path, index) => [
        { stroke: colourAt(index), width: 2, spanGaps: false, points: { size: 5 } },
        { stroke: 'transparent', points: { show: false } },
        { stroke: 'transparent', points: { show: false } },
      ]),
    ],
    bands: paths.map((_path, index) => ({ series: [index * 3 + 3, index * 3 + 2], fill: `${colourAt(index)}33` })),
    legend: { show: false },
  };
}

/** The width that the longest label of an axis takes, as a fixed one would cut it off. @returns CSS pixels */
function measureLabels(plot: UPlot, labels: string[] | null, axis_index: number): number {
  const { ticks, gap = 0, font = [] } = (plot.axes[axis_index] ?? {}) as UPlot.Axis;
  // uPlot keeps the font in the pixels of the canvas
  plot.ctx.font = String([font].flat()[0] ?? plot.ctx.font);
  const widths = (labels ?? []).map((label) => plot.ctx.measureText(label).width / devicePixelRatio);
  return Math.max(min_axis_px, Math.ceil((ticks?.size ?? 0) + gap + Math.max(0, ...widths)));
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
function toColumns({ result, metadata }: Series, paths: readonly string[]): AlignedData {
  const every = lengthOf(metadata.every);
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
