import { type InputHTMLAttributes, useEffect, useId, useRef, useState } from 'react';
import { isTime, type Schema, typeOf } from '../api/document.js';
import { useList, useSession } from '../api/hooks.js';
import { findType } from '../api/resources.js';
import { fromLocalInput, labelOf, toLocalInput } from '../lib/format.js';
import { Button } from '../ui/button.js';
import { CheckBoxes, Select } from '../ui/choice.js';
import { type InputProps, JsonInput, ScalarInput } from './inputs.js';

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
export function SchemaField({ schema: referring, help = true, ...props }: FieldProps) {
  const { name, error, isRequired } = props;
  const { resolve } = useSession();
  const schema = resolve(referring);
  const items = resolve(schema.items);
  const id = useId();
  const isFree = typeOf(schema) === 'object';
  if (isFree && schema.properties !== undefined) return <FieldGroup {...props} schema={schema} />;
  if (items.enum !== undefined) return <ChoiceList {...props} schema={schema} />;
  if (items.properties !== undefined) return <FieldRows {...props} schema={schema} items={items} />;
  // an input of a time takes no seconds, which the description names
  const about = help && !isTime(schema) ? schema.description?.replaceAll('`', '') : undefined;
  const described = [error && `${id}-error`, about && `${id}-help`].filter(Boolean).join(' ');
  const shared = {
    id,
    'aria-describedby': described || undefined,
    'aria-invalid': error === undefined ? undefined : true,
  } as const;
  return (
    <div className={error === undefined ? 'field' : 'field wrong'}>
      <label htmlFor={id}>
        {labelOf(name, schema['x-unit'])}
        {isRequired && <span className="required"> (required)</span>}
      </label>
      {isFree ? (
        <JsonInput {...props} shared={shared} />
      ) : (
        <PlainInput {...props} schema={schema} shared={{ ...shared, required: isRequired }} />
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

/** An object with known fields, such as `networking`. @param legend default: the name */
function FieldGroup({ name, schema, value, legend = labelOf(name), ...props }: FieldProps & { legend?: string }) {
  const { onChange, errors = {}, error } = props;
  const values = (value ?? {}) as Record<string, unknown>;
  const isPresent = value !== undefined && value !== null;
  return (
    <fieldset>
      <legend>{legend}</legend>
      {error !== undefined && <p className="message">{error}</p>}
      {Object.entries(schema.properties ?? {}).map(([member, memberSchema]) => (
        <SchemaField
          key={member}
          name={member}
          schema={memberSchema}
          value={values[member]}
          isRequired={isPresent && schema.required?.includes(member)}
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

/** A list of objects with known fields, such as the measures of a model. @param items schema of one object */
function FieldRows({ name, schema, items, value, onChange, ...props }: FieldProps & { items: Schema }) {
  const { errors = {}, error, isRequired } = props;
  const rows: readonly unknown[] = Array.isArray(value) ? value : [];
  // fields keep what is typed: after a removal all of them are new
  const [removals, setRemovals] = useState(0);
  const label = labelOf(name).replace(/s$/, '');
  const change = (changed: readonly unknown[]) => onChange(changed.length === 0 ? undefined : changed);
  return (
    <fieldset>
      <legend>
        {labelOf(name)}
        {isRequired && <span className="required"> (required)</span>}
      </legend>
      {error !== undefined && <p className="message">{error}</p>}
      <p className="help">{[schema.description, items.description].filter(Boolean).join(' ').replaceAll('`', '')}</p>
      {rows.map((row, index) => {
        const path = `${name}.${index}`;
        return (
          <div key={`${removals} ${path}`} className="field-row">
            <FieldGroup
              name={path}
              legend={`${label} ${index + 1}`}
              schema={items}
              value={row}
              error={errors[path]}
              errors={errors}
              onChange={(changed) => change(rows.with(index, changed ?? {}))}
            />
            <Button
              label="Remove"
              of={`${label.toLowerCase()} ${index + 1}`}
              onClick={() => {
                setRemovals(removals + 1);
                change(rows.toSpliced(index, 1));
              }}
            />
          </div>
        );
      })}
      <div>
        <Button label={`Add ${label.toLowerCase()}`} onClick={() => change([...rows, {}])} />
      </div>
    </fieldset>
  );
}

/** A list of some of the values that its items may have. */
function ChoiceList({ name, schema: { items }, value, onChange, error }: FieldProps) {
  const choices = useSession().resolve(items).enum ?? [];
  return (
    <fieldset>
      <legend>{labelOf(name)}</legend>
      {error !== undefined && <p className="message">{error}</p>}
      <div className="row choices">
        <CheckBoxes
          options={choices.map((choice) => [choice, choice])}
          chosen={Array.isArray(value) ? value : []}
          onChange={(chosen) =>
            onChange(chosen.length === 0 ? undefined : choices.filter((one) => chosen.includes(one)))
          }
        />
      </div>
    </fieldset>
  );
}

function PlainInput({ name, schema, value, onChange, shared }: InputProps & Pick<FieldProps, 'name' | 'schema'>) {
  const type = typeOf(schema);
  const text = value === undefined || value === null ? '' : String(value);
  const change = (typed: string) => onChange(typed === '' ? undefined : typed);
  if (schema.enum || type === 'boolean') return <Choice {...{ schema, value, onChange, shared }} />;
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
  if (type === undefined) return <ScalarInput {...{ value, onChange, shared }} />;
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
  if (type === 'number' || type === 'integer') {
    // `1.` and `-` are no numbers yet, and stay text while they are typed
    const toValue = (typed: string) => (String(Number(typed)) === typed ? Number(typed) : typed);
    return (
      <input
        {...shared}
        inputMode="decimal"
        value={text}
        onChange={({ target }) => onChange(target.value === '' ? undefined : toValue(target.value))}
      />
    );
  }
  if (name === 'description')
    return <textarea {...shared} rows={2} value={text} onChange={({ target }) => change(target.value)} />;
  const plural = schema['x-references'] ?? schema['x-catalogue'];
  const isSecret = schema.format === 'password';
  const input: InputHTMLAttributes<HTMLInputElement> = {
    ...shared,
    type: isSecret ? 'password' : 'text',
    autoComplete: isSecret ? 'new-password' : 'off',
    value: text,
    onChange: ({ target }) => change(target.value),
  };
  if (plural === undefined) return <input {...input} />;
  return <SuggestingInput input={input} plural={plural} typed={text} onChoose={change} />;
}

function Choice({ schema, value, onChange, shared }: InputProps & Pick<FieldProps, 'schema'>) {
  const isFlag = typeOf(schema) === 'boolean';
  const choices: readonly unknown[] = isFlag ? [true, false] : (schema.enum ?? []);
  return (
    <Select
      {...shared}
      value={String(value ?? '')}
      options={choices.map((choice) => [String(choice), isFlag ? (choice ? 'yes' : 'no') : String(choice)])}
      empty="–"
      onChange={(text) => onChange(choices.find((choice) => String(choice) === text))}
    />
  );
}

interface SuggestingInputProps {
  input: InputHTMLAttributes<HTMLInputElement>;
  plural: string;
  typed: string;
  onChoose(value: string): void;
}

/** An input with values to choose from: those of a catalogue, or objects whose name or identifier contains what was typed. */
function SuggestingInput({ input, plural, typed, onChoose }: SuggestingInputProps) {
  const { can, entryOf } = useSession();
  const path = `/${plural}/`;
  const isCatalogue = findType(plural) === undefined;
  const member = isCatalogue ? Object.keys(entryOf(path).properties ?? {})[0] : 'id_developer';
  const isSearched = typed.length > 0 && typed.length <= 100;
  // a form may have many of these fields
  const [isUsed, setUsed] = useState(false);
  const { data } = useList<Record<string, unknown>>(
    path,
    isCatalogue ? {} : { max: 100, ...(isSearched && { q: typed }) },
    { enabled: isUsed && can('GET', path) },
  );
  const list = `${input.id}-list`;
  const element = useRef<HTMLInputElement>(null);
  const entries = data?.result ?? [];
  // not what the address has brought: it could not be gone back to
  const isOwn = useRef(false);
  /** A name that was typed and that only one object has stands for its identifier. */
  function replaceName(): void {
    const [named, ...others] = isCatalogue || !isOwn.current ? [] : entries.filter(({ name }) => name === typed);
    if (named === undefined || others.length > 0 || named.id_developer === typed) return;
    isOwn.current = false;
    onChoose(String(named.id_developer));
  }
  // the answer may come after the field was left
  useEffect(() => {
    if (document.activeElement !== element.current) replaceName();
  });
  return (
    <>
      <input
        {...input}
        ref={element}
        list={list}
        onFocus={() => setUsed(true)}
        onChange={(event) => {
          isOwn.current = true;
          input.onChange?.(event);
        }}
        onBlur={replaceName}
        onKeyDown={({ key }) => {
          if (key === 'Enter') replaceName();
        }}
      />
      <datalist id={list}>
        {entries.map((entry) => {
          const value = String(entry[member ?? '']);
          return (
            <option key={value} value={value}>
              {isCatalogue ? undefined : String(entry.name)}
            </option>
          );
        })}
      </datalist>
    </>
  );
}
