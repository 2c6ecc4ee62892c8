import { useId, useState } from 'react';
import { isParameter, isTime, type Parameter, type Schema } from '../api/document.js';
import { SchemaField } from '../forms/fields.js';
import { labelOf } from '../lib/format.js';
import { spanOptions, spans } from '../lib/spans.js';
import { Select } from '../ui/choice.js';

interface FilterFieldProps {
  name: string;
  schema: Schema;
  values: FilterValues;
  onChange(changed: FilterValues): void;
}

export interface FilterFieldsProps extends Pick<FilterFieldProps, 'values' | 'onChange'> {
  parameters: readonly Parameter[];
}

/** A field for one filter of a list. */
export function FilterField({ name, schema, values, onChange }: FilterFieldProps) {
  return (
    <SchemaField
      name={name}
      schema={schema}
      help={false}
      value={values[name]}
      onChange={(value) => onChange({ [name]: value })}
    />
  );
}

/** Values of a form for filters: as typed, times as numbers. */
export type FilterValues = Readonly<Record<string, unknown>>;

/** Writes the values of a form as they are in an address. */
export function toFilters(values: FilterValues): Record<string, string> {
  const filled = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
  return Object.fromEntries(filled.map(([name, value]) => [name, String(value)]));
}

/** Reads the values of a form from filters. */
export function toValues(filters: Readonly<Record<string, string>>, parameters: readonly Parameter[]): FilterValues {
  const entries = Object.entries(filters).flatMap(([name, value]) => {
    const parameter = parameters.find((other) => isParameter(other, name));
    return parameter === undefined ? [] : [[name, isTime(parameter.schema) ? Number(value) : value] as const];
  });
  return Object.fromEntries(entries);
}

/** A span of time up to now, or from a time to another. @param name the field, without `_from` and `_to` */
export function TimeRange({ name, schema, values, onChange }: FilterFieldProps) {
  const id = useId();
  const [from, to] = [`${name}_from`, `${name}_to`];
  const [chosen, setChosen] = useState(values[from] === undefined && values[to] === undefined ? '' : 'custom');
  function choose(span: string): void {
    setChosen(span);
    if (span === 'custom') return;
    const length_s = spans[span]?.length_s;
    const start_s = length_s === undefined ? undefined : Math.floor(Date.now() / 1000) - length_s;
    onChange({ [from]: start_s, [to]: undefined });
  }
  return (
    <div className="field">
      <label htmlFor={id}>{labelOf(name)}</label>
      <Select id={id} value={chosen} options={spanOptions} empty="Any time" onChange={choose} />
      {chosen === 'custom' &&
        [from, to].map((bound) => (
          <FilterField key={bound} name={bound} schema={schema} values={values} onChange={onChange} />
        ))}
    </div>
  );
}
