import type { StoredEvent } from '../resources/event.js';

/** A text for people (reference/webhooks.md#notifications). */
export interface TextMessage {
  /** One line of at most 120 characters. */
  title: string;
  lines: readonly string[];
  /** Page of the console. */
  link?: string | undefined;
  severity?: string | undefined;
}

/** A message as a receiver takes it. */
export interface Written {
  /** Value of `Content-Type`. */
  type: string;
  headers?: Readonly<Record<string, string>>;
  body: string;
  /** Parameters that are added to the address. */
  query?: Readonly<Record<string, string>>;
}

/** Names of the objects that an event has identifiers of. */
export interface Names {
  nameOf(resource: string, id_developer: string): string;
  measureOf(path: string): { name?: string | undefined; unit?: string | undefined } | undefined;
  time_zone?: string | undefined;
}

type EventText = Omit<StoredEvent, '_id' | 'account'>;
type Data = Readonly<Record<string, unknown>>;

export const max_title_length = 120;
const max_line_length = 300;
/** Code units of one character: people read a letter under thousands of accents as one. */
const max_units_per_character = 32;
const levels = ['project', 'service', 'group', 'asset'] as const;
const labels: ReadonlyMap<string, string> = new Map([
  ['apikey', 'API key'],
  ['alarmrule', 'Alarm rule'],
  ['deviceconfig', 'Device config'],
  ['log.gap', 'Gap in the log of events'],
  ['state.desired', 'Desired state changed'],
  ['config.desired', 'Config assigned'],
  ['status.ok', 'Device sends again'],
  ['status.no_data', 'Device sends no data'],
  ['status.no_status', 'Device sends no status'],
  ['status.disconnected', 'Device is silent'],
  ['webhook.test', 'Test of webhook'],
]);
/** Controls, line ends, and marks that turn the direction of what follows. */
const unsafe = /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu;
const segmenter = new Intl.Segmenter();

/** Shortens a text to characters as people read them, whose sizes add up to `max`. */
export function limitText(text: string, max: number, sizeOf: (character: string) => number = countUnits): string {
  let [size, end] = [0, 0];
  for (const { segment, index } of segmenter.segment(text)) {
    size += sizeOf(segment);
    if (size > max) return `${text.slice(0, end)}…`;
    // leaves room for the ellipsis
    if (size + sizeOf('…') <= max) end = index + segment.length;
  }
  return text;
}

function countUnits(character: string): number {
  return Math.max(1, character.length / max_units_per_character);
}

function toLine(text: string, max = max_line_length): string {
  return limitText(
    text
      .slice(0, max * max_units_per_character)
      .replaceAll(unsafe, ' ')
      .trim(),
    max,
  );
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1).replaceAll('_', ' ');
}

/** Writes what happened, without what it happened to. */
export function writeKind({ type, resource, data = {} }: Pick<EventText, 'type' | 'resource' | 'data'>): string {
  const { severity, to } = data as Data;
  const verb = type.slice(resource.length + 1).replaceAll('_', ' ');
  if (resource === 'alarm') return capitalize(`${severity} alarm ${verb}`);
  if (type === 'device.status_changed') return labels.get(`status.${to}`) ?? `Device ${to}`;
  return labels.get(type) ?? `${labels.get(resource) ?? capitalize(resource)} ${verb}`;
}

/** Writes what happened in one line. */
function writeTitle(event: EventText, { nameOf }: Names): string {
  const { rule } = (event.data ?? {}) as Data;
  const name = nameOf(event.resource, event.id_developer);
  const subject = typeof rule === 'string' ? `${nameOf('alarmrule', rule)} at ${name}` : name;
  return toLine(`${writeKind(event)}: ${subject}`, max_title_length);
}

/** Writes all that a person needs to know of an event. */
export function writeMessage(event: EventText, names: Names, link?: string): TextMessage {
  const { type, resource, id_developer, at, user, data = {} } = event;
  const { severity, rule, values = {}, from, changed, name, note, raised_at, closed_at } = data as Data;
  const above = levels.flatMap((level) => event[`id_${level}`] ?? []);
  const since = type === 'alarm.raised' ? raised_at : type === 'alarm.closed' ? closed_at : undefined;
  const isLasting = resource === 'alarm' || type === 'device.status_changed';
  const time = formatTime(Number(since ?? at), names.time_zone);
  const facts: [string, unknown][] = [
    ['Severity', severity],
    ['Rule', rule && names.nameOf('alarmrule', String(rule))],
    [isLasting ? 'Device' : 'About', names.nameOf(resource, id_developer)],
    ['Part of', above.map((id, level) => names.nameOf(levels[level] ?? '', id)).join(' › ')],
    ...Object.entries(values as object).map(([path, value]): [string, string] => {
      const { name: measure = path, unit = '' } = names.measureOf(path) ?? {};
      return [measure, `${value} ${unit}`];
    }),
    ['Before', typeof from === 'string' ? capitalize(from) : undefined],
    ['Name', name],
    ['Changed', Array.isArray(changed) ? changed.join(', ') : undefined],
    ['Note', note],
    ['By', user],
    [isLasting ? 'Since' : 'At', time],
  ];
  const lines = facts.filter(([, fact]) => fact !== undefined && fact !== '');
  return {
    title: writeTitle(event, names),
    lines: lines.map(([label, fact]) => toLine(`${label}: ${fact}`)),
    link,
    ...(typeof severity === 'string' && { severity }),
  };
}

/** Formats epoch seconds in a time zone; UTC in one that this program does not know. */
export function formatTime(seconds: number, timeZone = 'UTC'): string {
  try {
    const format = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium', timeZone });
    return `${format.format(seconds * 1000)} (${timeZone})`;
  } catch {
    return formatTime(seconds);
  }
}

/** Writes a message as plain text without its title. */
export function writeBody({ lines, link }: TextMessage): string {
  return [...lines, ...(link === undefined ? [] : ['', link])].join('\n');
}
