import { type SubmitEvent, useEffect, useState } from 'react';
import { isTime, type Parameter } from '../api/document.js';
import { SchemaField } from '../forms/fields.js';
import { formatTime, labelOf } from '../lib/format.js';
import { FormActions } from '../ui/button.js';

interface FiltersProps {
  parameters: readonly Parameter[];
  active: Readonly<Record<string, string>>;
  onChange(filters: Record<string, string>): void;
}

/** All filters of a list: the search box if the interface has one, a form for the others, and those that are active. */
export function Filters({ parameters, active, onChange }: FiltersProps) {
  const [isOpen, setOpen] = useState(false);
  const schemaOf = (name: string) => parameters.find((parameter) => parameter.name === name)?.schema ?? {};
  const without = (name: string) => Object.fromEntries(Object.entries(active).filter(([other]) => other !== name));
  if (parameters.length === 0) return <div className="filters" />;
  return (
    <div className="filters">
      <search className="row">
        {parameters.some(({ name }) => name === 'q') && (
          <SearchBox value={active.q ?? ''} onSearch={(q) => onChange({ ...without('q'), ...(q && { q }) })} />
        )}
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Filters
        </button>
        {Object.entries(active).map(([name, value]) => (
          <button key={name} type="button" className="chip" onClick={() => onChange(without(name))}>
            <span className="hidden">Remove the filter </span>
            {labelOf(name)}: {isTime(schemaOf(name)) ? formatTime(Number(value)) : value} ✕
          </button>
        ))}
      </search>
      {isOpen && (
        <FilterForm
          key={JSON.stringify(active)}
          parameters={parameters.filter(({ name }) => name !== 'q')}
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

function SearchBox({ value, onSearch }: { value: string; onSearch(text: string): void }) {
  const [text, setText] = useState(value);
  // the address may change by itself; the box stays, and so does the focus
  useEffect(() => setText(value), [value]);
  function submit(event: SubmitEvent): void {
    event.preventDefault();
    onSearch(text);
  }
  return (
    <form onSubmit={submit}>
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
      parameters.map(({ name, schema }) => {
        const text = active[name];
        return [name, text !== undefined && isTime(schema) ? Number(text) : text];
      }),
    ),
  );
  function submit(event: SubmitEvent): void {
    event.preventDefault();
    const filled = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
    onApply(Object.fromEntries(filled.map(([name, value]) => [name, String(value)])));
  }
  return (
    <form className="card panel stack filter-form" onSubmit={submit}>
      <div className="grid">
        {parameters.map(({ name, schema }) => (
          <SchemaField
            key={name}
            name={name}
            schema={schema}
            help={false}
            value={values[name]}
            onChange={(value) => setValues((old) => ({ ...old, [name]: value }))}
          />
        ))}
      </div>
      <FormActions label="Apply" onCancel={() => onApply({})} cancelLabel="Remove all" />
    </form>
  );
}
