import { createTurns } from './turns.js';

/** Spans of a calendar. */
export const calendarUnits = ['day', 'week', 'month'] as const;
export type CalendarUnit = (typeof calendarUnits)[number];

const day_s = 86_400;
/** 1970-01-05 was a Monday. */
const monday_s = 4 * day_s;

/** Zones change their clocks back after a month at the earliest: where both ends of a span have an offset, all of it has. */
const steady_s = 14 * day_s;

/** Creates the difference between the clocks of a time zone and UTC in seconds, at epoch seconds. */
function createOffsets(time_zone: string): (at: number) => number {
  const part = '2-digit';
  const format = new Intl.DateTimeFormat('en-US', {
    ...{ timeZone: time_zone, hourCycle: 'h23', year: 'numeric', month: part },
    ...({ day: part, hour: part, minute: part, second: part } as const),
  });
  const measured = new Map<number, number>();
  const measure = (second: number): number => {
    const cached = measured.get(second);
    if (cached !== undefined) return cached;
    const [month = 0, day = 0, year = 0, ...time] = (format.format(second * 1000).match(/\d+/g) ?? []).map(Number);
    const offset = Date.UTC(year, month - 1, day, ...time) / 1000 - second;
    measured.set(second, offset);
    return offset;
  };
  return (at) => {
    const begin = Math.floor(at / steady_s) * steady_s;
    const offset = measure(begin);
    return offset === measure(begin + steady_s) ? offset : measure(Math.floor(at));
  };
}

/**
 * Lists the local midnights at which the days, weeks (from Monday) or months begin that a span touches, with their dates.
 * A midnight that the clocks pass twice is the first one; one that they skip is the moment after.
 * @returns undefined for more than `max`
 */
export async function listBeginnings(
  unit: CalendarUnit,
  time_zone: string,
  { at_from, at_to }: { at_from: number; at_to: number },
  max: number,
): Promise<ReadonlyMap<number, string> | undefined> {
  const offsetAt = createOffsets(time_zone);
  const findMidnight = (date_s: number): number => {
    const [before, after] = [date_s - offsetAt(date_s - day_s), date_s - offsetAt(date_s + day_s)];
    if (before === after || before + offsetAt(before) === date_s) return before;
    return after + offsetAt(after) === date_s ? after : before;
  };
  const takeTurns = createTurns();
  const beginnings = new Map<number, string>();
  const first_s = Math.floor((at_from + offsetAt(at_from)) / day_s) * day_s;
  for (let date_s = beginOfUnit(unit, first_s); ; date_s = beginOfUnit(unit, date_s, 1)) {
    await takeTurns();
    const at = findMidnight(date_s);
    if (at > at_to) return beginnings;
    // dates before the one that is open at the beginning of the span
    if (at <= at_from) beginnings.clear();
    beginnings.set(at, new Date(date_s * 1000).toISOString().split('T')[0] ?? '');
    if (beginnings.size > max) return undefined;
  }
}

/** The midnight, in UTC, of the first date of a unit, or of the next ones. */
function beginOfUnit(unit: CalendarUnit, date_s: number, next: 0 | 1 = 0): number {
  if (unit === 'day') return date_s + next * day_s;
  if (unit === 'week') return (Math.floor((date_s - monday_s) / (7 * day_s)) + next) * 7 * day_s + monday_s;
  const date = new Date(date_s * 1000);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + next) / 1000;
}
