import type { Schema } from '../api/document.js';
import { SchemaField } from '../forms/fields.js';
import type { FilterValues } from './filter-values.js';

interface FilterFieldProps {
  name: string;
  schema: Schema;
  values: FilterValues;
  onChange(changed: FilterValues): void;
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
