import { type SubmitEvent, useState } from 'react';
import type { Parameter } from '../api/document.js';
import { formatTime, labelOf } from '../format.js';
import { SchemaField } from './fields.js';
import { isTime } from './value.js';

interface FiltersProps {
  parameters: readonly Parameter[];
  active: Readonly<Record<string, string>>;
  /** Replaces all filters. */
  onChange(filters: Record<string, string>): void;
}

/** All filters of a list: the search box if the interface has one, a form for the others, and those that are active. */
export function Filters({ parameters, active, onChange }: FiltersProps) {
  const [isOpen, setOpen] = useState(false);
  const others = parameters.filter(({ name }) => name !== 'q');
  if (parameters.length === 0) return <div className="filters" />;
  const without = (name: string) => Object.fromEntries(Object.entries(active).filter(([other]) => other !== name));
  return (
    <div className="filters">
      <search className="filter-bar">
        {parameters.some(({ name }) => name === 'q') && (
          <SearchBox
            key={active.q ?? ''}
            value={active.q ?? ''}
            onSearch={(q) => onChange({ ...without('q'), ...(q && { q }) })}
          />
        )}
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Filters
        </button>
        {Object.entries(active).map(([name, value]) => (
          <button key={name} type="button" className="chip" onClick={() => onChange(without(name))}>
            <span className="hidden">Remove the filter </span>
            {labelOf(name)}:{' '}
            {formatFilter(
              value,
              parameters.find((parameter) => parameter.name === name),
            )}{' '}
            ✕
          </button>
        ))}
      </search>
      {isOpen && (
        <FilterForm
          key={JSON.stringify(active)}
          parameters={others}
          active={active}
          onApply={(filters) => {
            onChange({ ...(active.q && { q: active.q }), ...filters });
            setOpen(false);
          }}
        />
      )}
    </div>
  );
}

function formatFilter(value: string, parameter: Parameter | undefined): string {
  return parameter !== undefined && isTime(parameter) ? formatTime(Number(value)) : value;
}

function SearchBox({ value, onSearch }: { value: string; onSearch(text: string): void }) {
  const [text, setText] = useState(value);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onSearch(text);
      }}
    >
      <input
        type="search"
        aria-label="Search"
        placeholder="Search"
        maxLength={100}
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
    </form>
  );
}

interface FilterFormProps {
  parameters: readonly Parameter[];
  active: Readonly<Record<string, string>>;
  onApply(filters: Record<string, string>): void;
}

function FilterForm({ parameters, active, onApply }: FilterFormProps) {
  const [values, setValues] = useState<Record<string, unknown>>(() =>
    Object.fromEntries(
      parameters.map((parameter) => {
        const text = active[parameter.name];
        return [parameter.name, text !== undefined && isTime(parameter) ? Number(text) : text];
      }),
    ),
  );
  function submit(event: SubmitEvent): void {
    event.preventDefault();
    const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
    onApply(Object.fromEntries(given.map(([name, value]) => [name, String(value)])));
  }
  return (
    <form className="panel filter-form" onSubmit={submit}>
      <div className="grid">
        {parameters.map(({ name, schema, description }) => (
          <SchemaField
            key={name}
            name={name}
            schema={{ ...schema, ...(description !== undefined && { description }) }}
            help={false}
            value={values[name]}
            onChange={(value) => setValues((old) => ({ ...old, [name]: value }))}
          />
        ))}
      </div>
      <div className="actions">
        <button type="submit" className="primary">
          Apply
        </button>
        <button type="button" onClick={() => onApply({})}>
          Remove all
        </button>
      </div>
    </form>
  );
}
