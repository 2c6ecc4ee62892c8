import { useEffect, useReducer, useRef, useState } from 'react';
import { isParameter, type Parameter } from '../api/document.js';
import { Form, FormActions } from '../ui/button.js';
import { describeFilters } from './chips.js';
import { type FilterValues, toFilters, toValues } from './filter-field.js';
import { FilterFields, FilterSections } from './filter-fields.js';

interface FiltersProps {
  parameters: readonly Parameter[];
  active: Readonly<Record<string, string>>;
  onChange(filters: Record<string, string>): void;
}

/** Filters that are always in sight where a list has them. */
const main_filters = ['status', 'type', 'id_group', 'id_model'];

/** All filters of a list: the search box and the main ones where it has them, a form for the others, and those that are active. */
export function Filters({ parameters, active, onChange }: FiltersProps) {
  const [isOpen, setOpen] = useState(false);
  const main = main_filters.flatMap((name) => parameters.find((parameter) => parameter.name === name) ?? []);
  const others = parameters.filter(({ name }) => name !== 'q' && !main_filters.includes(name));
  const withoutAll = (removed: readonly Parameter[]) =>
    Object.fromEntries(
      Object.entries(active).filter(([name]) => !removed.some((parameter) => isParameter(parameter, name))),
    );
  const without = (removed: readonly string[]) =>
    Object.fromEntries(Object.entries(active).filter(([name]) => !removed.includes(name)));
  if (parameters.length === 0) return <div className="filters" />;
  return (
    <div className="filters">
      <search className="row">
        {parameters.some(({ name }) => name === 'q') && (
          <SearchBox value={active.q ?? ''} onSearch={(q) => onChange({ ...without(['q']), ...(q && { q }) })} />
        )}
        {main.length > 0 && (
          <MainFilters
            parameters={main}
            active={active}
            onChange={(filters) => onChange({ ...withoutAll(main), ...filters })}
          />
        )}
        {others.length > 0 && (
          <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            More filters
          </button>
        )}
        {describeFilters(parameters, active).map(({ names, text }) => (
          <button key={text} type="button" className="chip" onClick={() => onChange(without(names))}>
            <span className="hidden">Remove the filter </span>
            {text} ✕
          </button>
        ))}
      </search>
      {isOpen && (
        <FilterForm
          key={JSON.stringify(active)}
          parameters={others}
          active={active}
          onChange={(filters) => {
            onChange({ ...withoutAll(others), ...filters });
            setOpen(false);
          }}
        />
      )}
    </div>
  );
}

function SearchBox({ value, onSearch }: { value: string; onSearch(text: string): void }) {
  const [text, setText] = useState(value);
  // the address may change by itself; the box stays, and so does the focus
  useEffect(() => setText(value), [value]);
  return (
    <Form onSubmit={() => onSearch(text)}>
      <input
        type="search"
        aria-label="Search"
        placeholder="Search"
        maxLength={100}
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
    </Form>
  );
}

/** The filters in sight; one takes effect when its field is left, with Enter, or by a choice. */
function MainFilters({ parameters, active, onChange }: FiltersProps) {
  const activeOnes = Object.fromEntries(parameters.map(({ name }) => [name, active[name]]));
  const key = JSON.stringify(activeOnes);
  const [typed, setTyped] = useState<FilterValues>();
  const [typedAt, setTypedAt] = useState(key);
  // what was typed counts until the address changes, also by a link or by Back
  if (typedAt !== key) {
    setTypedAt(key);
    setTyped(undefined);
  }
  const values = typed ?? activeOnes;
  const [, noteBlur] = useReducer((count: number) => count + 1, 0);
  const form = useRef<HTMLFormElement>(null);
  function apply(filters: FilterValues): void {
    if (JSON.stringify(toFilters(filters)) !== JSON.stringify(toFilters(activeOnes))) onChange(toFilters(filters));
  }
  // a name that was typed is replaced by its identifier after the field was left
  useEffect(() => {
    if (!form.current?.contains(document.activeElement)) apply(values);
  });
  return (
    <Form ref={form} className="row main-filters" onSubmit={() => apply(values)} onBlur={noteBlur}>
      <FilterFields
        parameters={parameters}
        values={values}
        onChange={(changed) => {
          setTyped(changed);
          const isChosen = ({ name, schema }: Parameter) =>
            changed[name] !== values[name] && (schema.enum !== undefined || !isBeingTyped(changed[name]));
          if (parameters.some(isChosen)) apply(changed);
        }}
      />
      <button type="submit" className="hidden" tabIndex={-1} aria-hidden="true">
        Apply
      </button>
    </Form>
  );
}

/** Reports whether a text is in the field that has the focus; an identifier may replace a name in a field that was left. */
function isBeingTyped(text: unknown): boolean {
  const { activeElement } = document;
  return activeElement instanceof HTMLInputElement && activeElement.value === (text ?? '');
}

function FilterForm({ parameters, active, onChange }: FiltersProps) {
  const [values, setValues] = useState(() => toValues(active, parameters));
  return (
    <Form className="card panel stack filter-form" onSubmit={() => onChange(toFilters(values))}>
      <FilterSections parameters={parameters} values={values} onChange={setValues} />
      <FormActions label="Apply" onCancel={() => onChange({})} cancelLabel="Remove all" />
    </Form>
  );
}
