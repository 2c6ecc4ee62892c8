import { RulePreview } from '../alarms/rule-preview.js';
import { RuleSentence, sentenceFields } from '../alarms/rule-sentence.js';
import type { Schema } from '../api/document.js';
import { useSession } from '../api/hooks.js';
import type { ResourceType } from '../api/resources.js';
import { type FormExtra, fieldsOf, type Values } from '../forms/form.js';
import { toFilters, toValues } from '../lists/filter-field.js';
import { FilterSections } from '../lists/filter-fields.js';
import { parseSearch, stringifySearch } from '../ui/address.js';

/** The form of a type where it is more than its fields. */
interface FormParts {
  /** Fields that are in sight; the others are behind a click. */
  main?: readonly string[];
  /** Fields that the part below has. */
  hidden?: readonly string[];
  children?: FormExtra;
}

const parts: Readonly<Record<string, FormParts>> = {
  device: { main: ['name', 'type', 'id_model', 'id_group', 'id_asset', 'description'] },
  alarmrule: {
    main: ['name', 'severity'],
    hidden: sentenceFields,
    children: (rule, onChange, about) => (
      <>
        <RuleSentence {...{ rule, onChange, ...about }} />
        <RulePreview rule={rule} />
      </>
    ),
  },
  filter: { children: ({ query }, onChange) => <QueryBuilder query={query} onChange={onChange} /> },
};

/** The fields and parts of the form of a type. */
export function formOf({ name }: ResourceType, schema: Schema) {
  const { hidden = [], main, children } = parts[name] ?? {};
  const fields = fieldsOf(schema).filter((field) => !hidden.includes(field));
  return { fields, hidden, main, children };
}

/** The query of a saved filter as fields. */
function QueryBuilder({ query, onChange }: { query: unknown; onChange(changed: Values): void }) {
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
