import { isParameter, isTime, type Parameter } from '../api/document.js';
import { formatNumber, formatTime, isEpochSeconds, labelOf } from '../lib/format.js';
import { circleFilters, readCircle } from '../map/circle.js';
import { splitParameter } from './path-filters.js';

/** Filters that are shown, and removed, together. */
export interface Chip {
  names: readonly string[];
  text: string;
}

type Filters = Readonly<Record<string, string>>;

/** Describes active filters: both ends of a range as one, and a circle as one. */
export function describeFilters(parameters: readonly Parameter[], active: Filters): Chip[] {
  const circle = readCircle(active);
  const others = Object.keys(active).filter((name) => circle === undefined || !circleFilters.includes(name));
  const groups = Map.groupBy(others, groupOf);
  const chips: Chip[] = [...groups.values()].map((names) => ({
    names,
    text: describeGroup(parameters, active, names),
  }));
  if (circle === undefined) return chips;
  const text = `Place: within ${formatNumber(circle.distance_m / 1000, 1)} km of ${circle.lat}, ${circle.lon}`;
  return [...chips, { names: circleFilters, text }];
}

function groupOf(name: string): string {
  const { path, comparison } = splitParameter(name);
  return comparison === 'is' ? `is ${path}` : path;
}

function describeGroup(parameters: readonly Parameter[], active: Filters, names: readonly string[]): string {
  const { path, comparison } = splitParameter(names[0] ?? '');
  const { schema = {}, isPrefix } = parameters.find((parameter) => isParameter(parameter, names[0] ?? '')) ?? {};
  const show = (value = '') => (isTime(schema) && isEpochSeconds(Number(value)) ? formatTime(Number(value)) : value);
  const [from, to] = [active[`${path}_from`], active[`${path}_to`]];
  const values =
    comparison === 'is'
      ? names.map((name) => show(active[name]))
      : [...(from === undefined ? [] : [`from ${show(from)}`]), ...(to === undefined ? [] : [`to ${show(to)}`])];
  return `${isPrefix ? path : labelOf(path)}: ${values.join(' ')}`;
}
