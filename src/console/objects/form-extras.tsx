import { RulePreview } from '../alarms/rule-preview.js';
import type { ResourceType } from '../api/resources.js';
import { useSession } from '../api/session.js';
import type { FormExtra, Values } from '../forms/form.js';
import { toFilters, toValues } from '../lists/filter-field.js';
import { FilterSections } from '../lists/filter-fields.js';
import { parseSearch, stringifySearch } from '../ui/address.js';

/** Parts of forms below the fields, by type. */
const extras: ReadonlyMap<string, FormExtra> = new Map([
  ['alarmrule', (values) => <RulePreview rule={values} />],
  ['filter', ({ query }, onChange) => <QueryBuilder query={query} onChange={onChange} />],
]);

export function findFormExtra({ name }: ResourceType): FormExtra | undefined {
  return extras.get(name);
}

interface QueryBuilderProps {
  query: unknown;
  onChange(changed: Values): void;
}

/** The query of a saved filter as fields. */
export function QueryBuilder({ query, onChange }: QueryBuilderProps) {
  // a saved filter names no other
  const parameters = useSession()
    .filtersOf('/devices/')
    .filter(({ name }) => name !== 'filter');
  const filters = toFilters(parseSearch(typeof query === 'string' ? query : ''));
  return (
    <details>
      <summary>Build the query</summary>
      <div className="stack">
        <FilterSections
          parameters={parameters}
          values={toValues(filters, parameters)}
          onChange={(values) => onChange({ query: stringifySearch(toFilters(values)).slice(1) })}
        />
      </div>
    </details>
  );
}
