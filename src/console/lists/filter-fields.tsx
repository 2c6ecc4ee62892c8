import { isParameter, isTime, type Parameter, type Schema } from '../api/document.js';
import { circleFilters } from '../map/circle.js';
import { FilterField, type FilterFieldsProps, type FilterValues, TimeRange, toFilters } from './filter-field.js';
import { PathRows } from './path-rows.js';
import { PlaceField } from './place-field.js';

/** Fields for filters of a list. */
export function FilterFields({ parameters, values, onChange }: FilterFieldsProps) {
  return parameters
    .filter(({ isPrefix }) => !isPrefix)
    .map(({ name, schema }) => (
      <FilterField
        key={name}
        name={name}
        schema={schema}
        values={values}
        onChange={(changed) => onChange({ ...values, ...changed })}
      />
    ));
}

/** All filters of a list as parts of a form: values and properties, spans of time, a place, and single fields. */
export function FilterSections({ parameters, values, onChange }: FilterFieldsProps) {
  const prefixes = parameters.filter(({ isPrefix }) => isPrefix);
  const isPath = ([name]: readonly [string, unknown]) => prefixes.some((prefix) => isParameter(prefix, name));
  const entries = Object.entries(values);
  const ranges = parameters.filter(({ name, schema }) => isTime(schema) && name.endsWith('_from')).map(rangeOf);
  const place = parameters.filter(({ name }) => circleFilters.includes(name));
  const isPlain = ({ name }: Parameter) =>
    !circleFilters.includes(name) && !ranges.some((range) => range.names.includes(name));
  const patch = (changed: FilterValues) => onChange({ ...values, ...changed });
  return (
    <>
      {prefixes.length > 0 && (
        <PathRows
          active={toFilters(Object.fromEntries(entries.filter(isPath)))}
          onChange={(changed) =>
            onChange({ ...Object.fromEntries(entries.filter((entry) => !isPath(entry))), ...changed })
          }
        />
      )}
      <div className="grid">
        {ranges.map(({ name, schema }) => (
          <TimeRange key={name} name={name} schema={schema} values={values} onChange={patch} />
        ))}
        <FilterFields parameters={parameters.filter(isPlain)} values={values} onChange={onChange} />
      </div>
      {place.length > 0 && <PlaceField parameters={place} values={values} onChange={patch} />}
    </>
  );
}

/** A time and both its bounds. */
function rangeOf({ name: from, schema }: Parameter): { name: string; schema: Schema; names: readonly string[] } {
  const name = from.replace(/_from$/, '');
  return { name, schema, names: [name, from, `${name}_to`] };
}
