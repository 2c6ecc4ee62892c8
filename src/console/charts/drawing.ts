import type UPlot from 'uplot';
import type { Alarm } from '../api/interface.js';
import type { Mark } from './marks.js';
import type { Threshold } from './thresholds.js';

const event_colour = '#8a6fd8';
/** Legible on light and dark ground. */
const severityColours: Readonly<Record<Alarm['severity'], string>> = {
  critical: '#d6455d',
  warning: '#c07d10',
  info: '#3178d6',
};
const [faint, clear] = ['14', '33'];
const min_band_px = 3;

/** Draws a line for each event. */
export function drawEvents(plot: UPlot, marks: readonly Mark[]): void {
  for (const { at, alarm } of marks) {
    const left = Math.round(plot.valToPos(at, 'x', true));
    if (alarm !== undefined || left < plot.bbox.left || left > plot.bbox.left + plot.bbox.width) continue;
    strokeLine(plot, event_colour, [left, plot.bbox.top, left, plot.bbox.top + plot.bbox.height]);
  }
}

/** Fills the time of each alarm, from when it was raised until it was closed; a short one is wide enough to be seen. */
export function drawAlarms(plot: UPlot, marks: readonly Mark[]): void {
  const { left, top, width, height } = plot.bbox;
  const min_width = min_band_px * devicePixelRatio;
  for (const { at, alarm } of marks) {
    if (alarm === undefined) continue;
    const [begin, end] = [at, alarm.closed_at].map((time) =>
      time === undefined ? left + width : Math.round(plot.valToPos(time, 'x', true)),
    ) as [number, number];
    if (end < left || begin > left + width) continue;
    const from = Math.max(left, Math.min(begin, left + width - min_width));
    const to = Math.max(from + min_width, Math.min(left + width, end));
    fillArea(plot, severityColours[alarm.severity] + clear, [from, top, to - from, height]);
  }
}

/** Fills the values beyond each threshold that is in sight. */
export function drawThresholds(plot: UPlot, thresholds: readonly Threshold[]): void {
  const { left, top, width, height } = plot.bbox;
  for (const { op, value, severity } of thresholds) {
    const y = Math.round(plot.valToPos(value, 'y', true));
    if (y < top || y > top + height) continue;
    const colour = severityColours[severity];
    const [begin, end] = op.startsWith('>') ? [top, y] : [y, top + height];
    fillArea(plot, colour + faint, [left, begin, width, end - begin]);
    strokeLine(plot, colour, [left, y, left + width, y]);
  }
}

function fillArea({ ctx }: UPlot, colour: string, [left, top, width, height]: [number, number, number, number]): void {
  if (width <= 0) return;
  ctx.save();
  ctx.fillStyle = colour;
  ctx.fillRect(left, top, width, height);
  ctx.restore();
}

function strokeLine({ ctx }: UPlot, colour: string, [fromX, fromY, toX, toY]: [number, number, number, number]): void {
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(fromX, fromY);
  ctx.lineTo(toX, toY);
  ctx.stroke();
  ctx.restore();
}
