import './value.css';
import type { ReactNode } from 'react';
import { isTime, type Schema, typeOf } from '../api/document.js';
import { type NameOf, useNames } from '../api/names.js';
import {
  type Entry,
  type OpenAlarms,
  type ShownStatus,
  severities,
  shownStatusOf,
  statusLabels,
} from '../api/resources.js';
import { useNow } from '../lib/clock.js';
import { describeCondition } from '../lib/conditions.js';
import { formatBytes, formatDistance, formatNumber, formatTime, labelOf } from '../lib/format.js';
import { ObjectLink } from './address.js';
import { Facts } from './page.js';

interface StatusBadgeProps {
  status: unknown;
  /** Name of the object with this status, if the badge does not show it. */
  of?: string;
  children?: ReactNode;
}

/** The status of a device in words, with its colour. */
export function StatusBadge({ status, of, children }: StatusBadgeProps) {
  const label = statusLabels[status as ShownStatus] ?? String(status);
  if (of === undefined) return <span className={`badge status-${status}`}>{label}</span>;
  return (
    <span className={`badge status-${status}`} title={`${label}: ${of}`}>
      {children}
      <span className="hidden"> {label}</span>
    </span>
  );
}

/** The severity of an alarm, with its colour. */
export function SeverityBadge({ severity, children = severity }: { severity: string; children?: ReactNode }) {
  return <span className={`badge severity-${severity}`}>{children}</span>;
}

/** The open alarms of something by severity, beside its status; nothing without any. */
export function AlarmBadges({ alarms, of }: { alarms: Partial<OpenAlarms> | undefined; of?: string }) {
  return severities
    .filter((severity) => alarms?.[severity])
    .map((severity) => (
      <span key={severity} className={`badge severity-${severity}`} title={of && `Open alarms: ${of}`}>
        {formatNumber(alarms?.[severity] ?? 0)} {severity}
      </span>
    ));
}

/** A time as a distance from now, which moves; the exact time is in the title. */
export function Time({ seconds, timeZone }: { seconds: number; timeZone?: string | undefined }) {
  // the unit that is shown, so that a long table seldom renders
  const distance_s = Math.abs(Date.now() / 1000 - seconds);
  useNow(distance_s < minute_s ? 1 : distance_s < hour_s ? minute_s / 2 : hour_s / 2);
  return (
    <time dateTime={new Date(seconds * 1000).toISOString()} title={formatTime(seconds, timeZone)}>
      {formatDistance(seconds)}
    </time>
  );
}

const minute_s = 60;
const hour_s = 3600;

/** Says when what is shown was read. @param at_ms epoch milliseconds */
export function ReadAt({ at_ms }: { at_ms: number }) {
  const age_s = Math.max(0, useNow(1) - Math.floor(at_ms / 1000));
  // what is shown in place of an answer has no time
  if (at_ms === 0) return null;
  return <span className="muted">updated {age_s} s ago</span>;
}

interface ValueProps {
  field: string;
  value: unknown;
  schema?: Schema | undefined;
  /** Names what the field refers to; default: the value looks it up. */
  nameOf?: NameOf;
}

/** The value of a field for people. Text of clients is only ever shown as text. */
export function Value({ field, value, schema = {}, nameOf }: ValueProps) {
  if (value === undefined || value === null) return '–';
  if (typeof value === 'boolean') return value ? 'yes' : <span className="badge off">no</span>;
  if (typeof value === 'number') {
    if (isTime(schema)) return <Time seconds={value} />;
    return schema['x-unit'] === 'bytes' ? formatBytes(value) : formatNumber(value);
  }
  if (field === 'conditions' && Array.isArray(value)) return value.map(describeCondition).join('; ');
  if (typeof value !== 'string') return <code className="json">{JSON.stringify(value)}</code>;
  if (field === 'status') return <StatusBadge status={value} />;
  if (field === 'severity') return <SeverityBadge severity={value} />;
  const plural = schema['x-references'];
  if (plural === undefined) return value;
  if (nameOf === undefined) return <Reference plural={plural} id={value} />;
  return <ObjectLink plural={plural} id={value} label={nameOf(plural, value)} />;
}

/** A link to an object, by its name. */
export function Reference({ plural, id }: { plural: string; id: string }) {
  return <ObjectLink plural={plural} id={id} label={useNames([plural])(plural, id)} />;
}

interface FieldListProps {
  schema: Schema;
  values: Entry;
  /** Default: all of the schema. */
  fields?: readonly string[];
}

export function FieldList({ schema: { properties = {} }, values, fields = Object.keys(properties) }: FieldListProps) {
  const entries = fields
    .filter((name) => values[name] !== undefined)
    .map((name) => {
      const [value, schema] = [name === 'status' ? shownStatusOf(values) : values[name], properties[name] ?? {}];
      const isNested = (typeOf(schema) === 'object' || typeof value === 'object') && name !== 'conditions';
      const Shown = isNested ? NestedValue : Value;
      return [
        labelOf(name, schema['x-unit']),
        <Shown key={name} field={name} value={value} schema={schema} />,
      ] as const;
    });
  return <Facts entries={entries} />;
}

/** An object as a list of its members; what is deeper, and arrays, as JSON. */
function NestedValue({ value }: ValueProps) {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return <pre className="json">{JSON.stringify(value, undefined, 2)}</pre>;
  const entries = Object.entries(value).map(([name, member]) => [name, textOf(member)] as const);
  return <Facts entries={entries} />;
}

function textOf(member: unknown): ReactNode {
  return typeof member === 'object' ? <code className="json">{JSON.stringify(member)}</code> : String(member);
}
