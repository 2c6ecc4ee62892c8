import { useId, useState } from 'react';
import type { Schema } from '../api/document.js';
import { labelOf } from '../lib/format.js';
import { spans } from '../lib/spans.js';
import { FilterField } from './filter-field.js';
import type { FilterValues } from './filter-values.js';

interface TimeRangeProps {
  /** The field, without `_from` and `_to`. */
  name: string;
  schema: Schema;
  values: FilterValues;
  onChange(changed: FilterValues): void;
}

/** A span of time up to now, or from a time to another. */
export function TimeRange({ name, schema, values, onChange }: TimeRangeProps) {
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
      <select id={id} value={chosen} onChange={({ target }) => choose(target.value)}>
        <option value="">Any time</option>
        {Object.entries(spans).map(([span, { label }]) => (
          <option key={span} value={span}>
            {label}
          </option>
        ))}
        <option value="custom">From … to …</option>
      </select>
      {chosen === 'custom' &&
        [from, to].map((bound) => (
          <FilterField key={bound} name={bound} schema={schema} values={values} onChange={onChange} />
        ))}
    </div>
  );
}
