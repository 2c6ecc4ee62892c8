import { useId, useState } from 'react';
import type { Stream } from '../api/interface.js';
import { formatNumber, formatTime } from '../lib/format.js';
import { normalizePath, valueAt } from '../lib/paths.js';
import { SeverityBadge, Time } from '../ui/value.js';
import { findMeasure, groupByUnit, type Plot } from './measures.js';
import { colourAt, PlottedSeries, type PlottedSeriesProps } from './plotted-series.js';

interface PlotsProps extends Omit<PlottedSeriesProps, 'sync' | 'hasTimes' | 'onCursor'> {
  /** The last ones, the newest first. */
  streams: readonly Stream[];
}

const max_listed_marks = 20;
/** A mark within this part of the span is under the cursor. */
const mark_reach = 0.01;

/** One chart for each unit, below each other, with one cursor for all. */
export function Plots({ series, paths, measures, streams, marks, thresholds, label, timeZone, onZoom }: PlotsProps) {
  const [cursor, setCursor] = useState<number>();
  const sync = useId();
  const plots = groupByUnit(paths, measures);
  const { at_from, at_to } = series.metadata;
  const shownMarks = marks.filter(({ at, alarm }) => at <= at_to && (at >= at_from || alarm !== undefined));
  const reach_s = (at_to - at_from) * mark_reach;
  const touched = cursor === undefined ? undefined : shownMarks.find(({ at }) => Math.abs(at - cursor) <= reach_s);
  return (
    <div className="plots">
      <p className="cursor muted" aria-hidden="true">
        {cursor !== undefined && formatTime(cursor, timeZone)}
        {cursor === undefined && onZoom && 'Drag across a chart to zoom in.'}
        {touched && <strong> {touched.text}</strong>}
      </p>
      {plots.map((plot, index) => (
        <div key={plot.key} className="plot">
          <PlottedSeries
            series={series}
            paths={plot.paths}
            measures={measures}
            marks={shownMarks.filter(({ alarm }) => alarm === undefined || isAbout(alarm.paths, plot))}
            thresholds={thresholds.filter(({ path }) => isAbout([path], plot))}
            label={label}
            timeZone={timeZone}
            sync={sync}
            hasTimes={index === plots.length - 1}
            onCursor={setCursor}
            onZoom={onZoom}
          />
          <Readings {...{ plot, measures, thresholds, series, streams, cursor }} />
        </div>
      ))}
      {shownMarks.length > 0 && (
        <details className="marks">
          <summary>
            {shownMarks.length === 1 ? '1 event' : `${formatNumber(shownMarks.length)} events`} in this time
          </summary>
          <ul>
            {shownMarks.slice(0, max_listed_marks).map(({ id, at, text }) => (
              <li key={id}>
                <Time seconds={at} timeZone={timeZone} /> {text}
              </li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}

/** Reports whether a chart has one of the paths; what is about none is in all charts. */
function isAbout(paths: readonly string[], plot: Plot): boolean {
  const shown = new Set(plot.paths.map(normalizePath));
  return paths.length === 0 || paths.some((path) => shown.has(normalizePath(path)));
}

interface ReadingsProps extends Pick<PlotsProps, 'measures' | 'thresholds' | 'series' | 'streams'> {
  plot: Plot;
  /** The time under the cursor; undefined: the present values are shown. */
  cursor: number | undefined;
}

/** The values beside a chart: the present ones, or those under the cursor. */
function Readings({ plot: { paths, unit }, measures, thresholds, series, streams, cursor }: ReadingsProps) {
  const bucket = cursor === undefined ? undefined : series.result.findLast(({ at }) => at <= cursor);
  function readValue(path: string): unknown {
    const values = bucket?.[path];
    if (bucket !== undefined) return typeof values === 'object' ? values.avg : undefined;
    return streams.map(({ data }) => valueAt(data, path)).find((value) => value !== undefined);
  }
  return (
    <dl className="readings">
      {paths.map((path, index) => {
        const { name, decimals } = findMeasure(measures, path);
        const value = readValue(path);
        return (
          <div key={path}>
            <dt title={path}>
              <svg width="10" height="10" aria-hidden="true">
                <rect width="10" height="10" rx="2" fill={colourAt(index)} />
              </svg>{' '}
              {name}
            </dt>
            <dd>
              <span>{typeof value === 'number' ? formatNumber(value, decimals) : '–'}</span>
              {unit !== '' && <span className="muted"> {unit}</span>}
            </dd>
            {thresholds
              .filter((threshold) => normalizePath(threshold.path) === normalizePath(path))
              .map(({ op, value: limit, severity }) => (
                <dd key={`${op} ${limit} ${severity}`}>
                  <SeverityBadge severity={severity}>
                    {severity} {op} {formatNumber(limit)}
                  </SeverityBadge>
                </dd>
              ))}
          </div>
        );
      })}
    </dl>
  );
}
