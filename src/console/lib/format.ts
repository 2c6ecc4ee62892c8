const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 });
/** In the language of the page. */
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });

const steps = [
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
  ['second', 1],
] as const;

/** IANA name of the zone of the browser. */
export const browserZone = new Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Reports whether the browser knows a zone, as it may be older than the service. */
export function isKnownZone(timeZone: string): boolean {
  try {
    return new Intl.DateTimeFormat(undefined, { timeZone }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}

/** Reports whether a number, such as one of the address, is a time in epoch seconds. */
export function isEpochSeconds(seconds: number): boolean {
  return !Number.isNaN(new Date(seconds * 1000).getTime());
}

/** Formats epoch seconds in the zone of the browser, or in another one, which is named then. */
export function formatTime(seconds: number, timeZone = browserZone): string {
  const date = new Date(seconds * 1000);
  if (timeZone === browserZone || !isKnownZone(timeZone)) return dateTime.format(date);
  return `${new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium', timeZone }).format(date)} (${timeZone})`;
}

/** Formats epoch seconds as a distance from now, such as "3 hr ago". */
export function formatDistance(seconds: number, now_s = Date.now() / 1000): string {
  const distance = seconds - now_s;
  const [unit, length] = steps.find(([, size]) => Math.abs(distance) >= size) ?? ['second', 1];
  return relative.format(Math.round(distance / length), unit);
}

/** Formats a duration by its largest unit, such as "3 h". */
export function formatDuration(seconds: number): string {
  const [unit, length] = steps.find(([, size]) => seconds >= size) ?? ['second', 1];
  return `${Math.round(seconds / length)} ${{ day: 'd', hour: 'h', minute: 'min', second: 's' }[unit]}`;
}

/** Formats a number with the separators of the browser's language. @param decimals digits after the point; default: as needed */
export function formatNumber(value: number, decimals?: number): string {
  if (decimals === undefined) return number.format(value);
  return value.toLocaleString(undefined, { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), units.length - 1);
  return `${formatNumber(Math.round((bytes / 1024 ** power) * 10) / 10)} ${units[power]}`;
}

const irregularLabels: Readonly<Record<string, string>> = {
  id_developer: 'Identifier',
  created_at: 'Created',
  updated_at: 'Updated',
  updater: 'Last changed by',
  last_stream_at: 'Last data',
  last_status_at: 'Last status',
  stream_due_at: 'Data due',
  status_due_at: 'Status due',
  frequency_stream: 'Data every',
  frequency_status: 'Status every',
  lon: 'Longitude',
  lat: 'Latitude',
  geo_lon: 'Longitude',
  geo_lat: 'Latitude',
  geo_distance: 'Radius',
  _t: 'Kind of stream',
  q: 'Search',
  url: 'Address',
  took_ms: 'Took',
  next_at: 'Next attempt',
  at: 'Time',
  expires_at: 'Expires',
  modified_at: 'Modified',
  date_deployed: 'Deployed',
};
/** Units in which values are shown as numbers. */
const shownUnits: readonly unknown[] = ['seconds', 'minutes', 'milliseconds', 'metres', 'degrees'];

/** Names a field for people: `sim_card` becomes "Sim card", `id_group` "Group", `frequency_stream` "Data every (minutes)". */
export function labelOf(field: string, unit?: string): string {
  const [, ranged = field, end = ''] = /^(.*)(_from|_to)$/.exec(field) ?? [];
  const words = field.replace(/^id_/, '').replaceAll('_', ' ');
  const label = Object.hasOwn(irregularLabels, ranged)
    ? `${irregularLabels[ranged]}${end.replace('_', ' ')}`
    : words.charAt(0).toUpperCase() + words.slice(1);
  return shownUnits.includes(unit) ? `${label} (${unit})` : label;
}

/** Converts epoch seconds to the value of an `<input type="datetime-local">`, which is empty without a time. */
export function toLocalInput(seconds: number, timeZone = browserZone): string {
  if (!isEpochSeconds(seconds)) return '';
  // Swedish dates are those of ISO 8601
  const format = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium', timeZone });
  return format.format(new Date(seconds * 1000)).replace(' ', 'T');
}

/** Converts the value of an `<input type="datetime-local">` to epoch seconds. */
export function fromLocalInput(text: string, timeZone = browserZone): number | undefined {
  const wanted_s = Date.parse(`${text}Z`) / 1000;
  if (Number.isNaN(wanted_s)) return undefined;
  let seconds = wanted_s;
  // the second time with the offset of that moment
  for (let round = 0; round < 2; round++)
    seconds += wanted_s - Date.parse(`${toLocalInput(seconds, timeZone)}Z`) / 1000;
  return seconds;
}
