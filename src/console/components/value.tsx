import { ReferenceLink } from '../address.js';
import { type Schema, typeOf } from '../api/document.js';
import { formatDistance, formatNumber, formatTime, labelOf } from '../format.js';
import { type DeviceStatus, referredType, statusLabels } from '../resources.js';

/** Reports whether a number is a time in epoch seconds; the interface says so in the description. */
export function isTime(schema: Pick<Schema, 'description'>): boolean {
  return schema.description?.includes('Seconds since 1970') === true;
}

/** The status of a device in words, with its colour. */
export function StatusBadge({ status }: { status: string }) {
  return <span className={`badge status-${status}`}>{statusLabels[status as DeviceStatus] ?? status}</span>;
}

/** A time as a distance from now; the exact time is in the title. */
export function Time({ seconds, timeZone }: { seconds: number; timeZone?: string | undefined }) {
  return (
    <time dateTime={new Date(seconds * 1000).toISOString()} title={formatTime(seconds, timeZone)}>
      {formatDistance(seconds)}
    </time>
  );
}

/** The value of a field for people. Text of clients is only ever shown as text. */
export function Value({ field, value, schema = {} }: { field: string; value: unknown; schema?: Schema | undefined }) {
  if (value === undefined || value === null) return <span className="muted">–</span>;
  if (field === 'status' && typeof value === 'string') return <StatusBadge status={value} />;
  if (typeof value === 'boolean') return value ? 'yes' : <span className="badge off">no</span>;
  if (typeof value === 'number') return isTime(schema) ? <Time seconds={value} /> : formatNumber(value);
  if (typeof value === 'string')
    return referredType(field) === undefined ? value : <ReferenceLink field={field} id={value} />;
  return <code className="json">{JSON.stringify(value)}</code>;
}

/** Fields of an object with their values. */
export function FieldList({ schema, values, fields }: { schema: Schema; values: object; fields?: readonly string[] }) {
  const names = fields ?? Object.keys(schema.properties ?? {});
  const entries = names.map((name) => [name, (values as Record<string, unknown>)[name]] as const);
  return (
    <dl className="fields">
      {entries
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => (
          <FieldEntry key={name} name={name} value={value} schema={schema.properties?.[name] ?? {}} />
        ))}
    </dl>
  );
}

function FieldEntry({ name, value, schema }: { name: string; value: unknown; schema: Schema }) {
  const isNested = typeOf(schema) === 'object' || (typeof value === 'object' && value !== null);
  return (
    <div>
      <dt>{labelOf(name)}</dt>
      <dd>{isNested ? <NestedValue value={value} /> : <Value field={name} value={value} schema={schema} />}</dd>
    </div>
  );
}

/** An object as a list of its members; what is deeper, and arrays, as JSON. */
function NestedValue({ value }: { value: unknown }) {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return <pre className="json">{JSON.stringify(value, undefined, 2)}</pre>;
  return (
    <dl className="nested">
      {Object.entries(value).map(([name, member]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {typeof member === 'object' ? <code className="json">{JSON.stringify(member)}</code> : String(member)}
          </dd>
        </div>
      ))}
    </dl>
  );
}
