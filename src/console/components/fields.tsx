import { useId, useState } from 'react';
import { resolve, type Schema, typeOf } from '../api/document.js';
import { useList, useSession } from '../api/queries.js';
import { fromLocalInput, labelOf, toLocalInput } from '../format.js';
import { findType, referredType } from '../resources.js';
import { isTime } from './value.js';

export interface FieldProps {
  name: string;
  schema: Schema;
  value: unknown;
  onChange(value: unknown): void;
  error?: string | undefined;
  isRequired?: boolean;
  /** Messages of fields below this one, by path. */
  errors?: Readonly<Record<string, string>>;
  help?: boolean;
}

/** A field of a form, made from its schema, with its description and the message about what is wrong. */
export function SchemaField(props: FieldProps) {
  const { document } = useSession();
  const schema = resolve(document, props.schema);
  const isFree = typeOf(schema) === 'object' && schema.properties === undefined;
  if (typeOf(schema) === 'object' && !isFree) return <FieldGroup {...props} schema={schema} />;
  return <SingleField {...props} schema={schema} isFree={isFree} />;
}

function SingleField({ isFree, ...props }: FieldProps & { isFree: boolean }) {
  const { name, schema, error, isRequired, help = true } = props;
  const id = useId();
  const about = help ? helpOf(schema) : undefined;
  const described = [error && `${id}-error`, about && `${id}-help`].filter(Boolean).join(' ');
  return (
    <div className={error === undefined ? 'field' : 'field wrong'}>
      <label htmlFor={id}>
        {labelOf(name)}
        {isRequired && <span className="required"> (required)</span>}
      </label>
      {isFree ? (
        <JsonInput {...props} id={id} described={described} />
      ) : (
        <PlainInput {...props} id={id} described={described} />
      )}
      {error !== undefined && (
        <p className="message" id={`${id}-error`}>
          {error}
        </p>
      )}
      {about && (
        <p className="help" id={`${id}-help`}>
          {about}
        </p>
      )}
    </div>
  );
}

/** The description without what the input itself shows. */
function helpOf({ description }: Schema): string | undefined {
  return description
    ?.replaceAll('`', '')
    .replace(/ ?Seconds since 1970-01-01 UTC\.?/, '')
    .trim();
}

/** An object with known fields, such as `networking`. */
function FieldGroup({ name, schema, value, onChange, errors = {}, error }: FieldProps) {
  const values = (value ?? {}) as Record<string, unknown>;
  const isGiven = value !== undefined && value !== null;
  return (
    <fieldset>
      <legend>{labelOf(name)}</legend>
      {error !== undefined && <p className="message">{error}</p>}
      {Object.entries(schema.properties ?? {}).map(([member, memberSchema]) => (
        <SchemaField
          key={member}
          name={member}
          schema={memberSchema}
          value={values[member]}
          isRequired={isGiven && schema.required?.includes(member)}
          error={errors[`${name}.${member}`]}
          onChange={(changed) => {
            const others = Object.entries({ ...values, [member]: changed }).filter(([, inner]) => inner !== undefined);
            onChange(others.length === 0 ? undefined : Object.fromEntries(others));
          }}
        />
      ))}
    </fieldset>
  );
}

interface InputProps extends FieldProps {
  id: string;
  described: string;
}

function PlainInput({ id, described, name, schema, value, onChange, error, isRequired }: InputProps) {
  const shared = {
    id,
    'aria-describedby': described || undefined,
    'aria-invalid': error === undefined ? undefined : true,
    required: isRequired,
  } as const;
  const type = typeOf(schema);
  const text = value === undefined || value === null ? '' : String(value);
  if (schema.enum || type === 'boolean') {
    const choices = schema.enum?.map(String) ?? ['true', 'false'];
    const toValue = (chosen: string) =>
      type === 'boolean' ? chosen === 'true' : type === 'integer' ? Number(chosen) : chosen;
    return (
      <select
        {...shared}
        value={text}
        onChange={({ target }) => onChange(target.value === '' ? undefined : toValue(target.value))}
      >
        <option value="">–</option>
        {choices.map((choice) => (
          <option key={choice} value={choice}>
            {type === 'boolean' ? { true: 'yes', false: 'no' }[choice] : choice}
          </option>
        ))}
      </select>
    );
  }
  if (isTime(schema)) {
    return (
      <input
        {...shared}
        type="datetime-local"
        step={1}
        value={typeof value === 'number' ? toLocalInput(value) : ''}
        onChange={({ target }) => onChange(fromLocalInput(target.value))}
      />
    );
  }
  if (type === 'array') {
    const entries = Array.isArray(value) ? value.map(String) : [];
    return (
      <textarea
        {...shared}
        rows={Math.min(8, Math.max(3, entries.length))}
        value={entries.join('\n')}
        onChange={({ target }) => onChange(target.value === '' ? undefined : target.value.split('\n'))}
      />
    );
  }
  if (type === 'number' || type === 'integer') return <NumberInput shared={shared} value={value} onChange={onChange} />;
  if (name === 'description') {
    return (
      <textarea {...shared} rows={2} value={text} onChange={({ target }) => onChange(target.value || undefined)} />
    );
  }
  const suggestions = suggestionsOf(name);
  return (
    <>
      <input
        {...shared}
        type={schema.format === 'password' ? 'password' : 'text'}
        autoComplete={schema.format === 'password' ? 'new-password' : 'off'}
        list={suggestions && `${id}-list`}
        value={text}
        onChange={({ target }) => onChange(target.value === '' ? undefined : target.value)}
      />
      {suggestions && <Suggestions id={`${id}-list`} source={suggestions} typed={text} />}
    </>
  );
}

interface NumberInputProps {
  shared: object;
  value: unknown;
  onChange(value: unknown): void;
}

/** Keeps the text while it is typed: `1.` and `-` are no numbers yet, and are sent as they stand. */
function NumberInput({ shared, value, onChange }: NumberInputProps) {
  const text = value === undefined || value === null ? '' : String(value);
  return (
    <input
      {...shared}
      type="text"
      inputMode="decimal"
      value={text}
      onChange={({ target }) => {
        const typed = target.value;
        const isNumber = typed.trim() !== '' && String(Number(typed)) === typed;
        onChange(typed === '' ? undefined : isNumber ? Number(typed) : typed);
      }}
    />
  );
}

/** Turns what was typed into numbers, where the last characters were still missing: `1.50`, `1e3`. */
export function toNumber(value: unknown): unknown {
  if (typeof value !== 'string' || value.trim() === '') return value;
  const converted = Number(value.replace(',', '.'));
  return Number.isNaN(converted) ? value : converted;
}

/** Free-form JSON. Text that is no JSON stays text, which the service rejects with a message. */
function JsonInput({ id, described, value, onChange, error }: InputProps) {
  const [text, setText] = useState(() =>
    value === undefined || value === null ? '' : JSON.stringify(value, undefined, 2),
  );
  return (
    <textarea
      id={id}
      className="code"
      rows={5}
      spellCheck={false}
      aria-describedby={described || undefined}
      aria-invalid={error === undefined ? undefined : true}
      placeholder="{ }"
      value={text}
      onChange={({ target }) => {
        setText(target.value);
        onChange(parseJson(target.value));
      }}
    />
  );
}

function parseJson(text: string): unknown {
  if (text.trim() === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

interface Source {
  path: string;
  member: string;
}

const catalogues: Readonly<Record<string, Source>> = {
  type: { path: '/types/', member: 'type' },
  sensor: { path: '/sensors/', member: 'sensor' },
  time_zone: { path: '/time_zones/', member: 'tz' },
};

function suggestionsOf(name: string): Source | undefined {
  const plural = referredType(name);
  return plural === undefined ? catalogues[name] : { path: `/${plural}/`, member: 'id_developer' };
}

/** Values to choose from: those of a catalogue, or identifiers that contain what was typed. */
function Suggestions({ id, source: { path, member }, typed }: { id: string; source: Source; typed: string }) {
  const { document } = useSession();
  const canSearch = document.paths[path]?.get?.parameters?.some(({ name }) => name === 'q') === true;
  const isSearched = canSearch && typed.length > 0 && typed.length <= 100;
  const isCatalogue = findType(path.slice(1, -1)) === undefined;
  const query = isCatalogue ? {} : { max: 100, ...(isSearched && { q: typed }) };
  const { data } = useList<Record<string, unknown>>(path, query);
  return (
    <datalist id={id}>
      {data?.result.map((entry) => (
        <option key={String(entry[member])} value={String(entry[member])} />
      ))}
    </datalist>
  );
}
