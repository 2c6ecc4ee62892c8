import './form.css';
import { type ReactNode, useEffect, useRef, useState } from 'react';
import type { Schema } from '../api/document.js';
import { RequestError } from '../api/errors.js';
import { useSession } from '../api/hooks.js';
import { Form, FormActions } from '../ui/button.js';
import { CurlButton, type ShownCall } from '../ui/curl.js';
import { Failure } from '../ui/page.js';
import { SchemaField } from './fields.js';
import { toNumbers } from './numbers.js';

export type Values = Record<string, unknown>;

/** The change that a form makes with its values; `useApiMutation` returns one. */
export interface FormMutation {
  mutate(values: Values): void;
  error: unknown;
  isPending: boolean;
}

/** A part below the fields, for their values; it may change some of them, and shows messages about those that it has. */
export type FormExtra = (
  values: Values,
  onChange: (changed: Values) => void,
  about: { schema: Schema; errors: Readonly<Record<string, string>> },
) => ReactNode;

interface FormProps {
  schema: Schema;
  initial?: Values;
  /** Fields to show, in order; default: all. */
  fields?: readonly string[];
  /** Those in sight; the others are behind a click. Default: all. */
  main?: readonly string[] | undefined;
  submitLabel: string;
  mutation: FormMutation;
  onCancel?: (() => void) | undefined;
  /** The request that the form sends. */
  callOf?(values: Values): ShownCall;
  children?: FormExtra | undefined;
}

/** The fields of a schema that people fill in, the required ones first. */
export function fieldsOf({ properties = {}, required = [] }: Schema): string[] {
  const names = Object.keys(properties).filter(
    (name) => name !== 'version' && properties[name]?.['x-alias-of'] === undefined,
  );
  return [...names.filter((name) => required.includes(name)), ...names.filter((name) => !required.includes(name))];
}

/**
 * A form made from a schema. What the service finds wrong is shown beside the field it names, and the first such field
 * takes the focus.
 */
export function SchemaForm({ schema, initial = {}, submitLabel, mutation, onCancel, children, ...props }: FormProps) {
  const { resolve } = useSession();
  const [values, setValues] = useState<Values>(initial);
  const { error, isPending } = mutation;
  const form = useRef<HTMLFormElement>(null);
  const { fields = fieldsOf(schema), main = fields, callOf } = props;
  const errors = error instanceof RequestError ? error.fieldMessages : {};
  const isShown = (field: string) => fields.some((name) => field === name || field.startsWith(`${name}.`));
  const unassigned = Object.entries(errors).filter(([field]) => !isShown(field));
  const schemaOf = (name: string) => resolve(schema.properties?.[name]);

  useEffect(() => {
    if (error) form.current?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus();
  }, [error]);

  const converted = () => toNumbers(values, schema, resolve) as Values;

  /** The first message about something inside of free-form JSON, which has one field in the form. */
  function errorBelow(name: string): string | undefined {
    const { properties, items } = schemaOf(name);
    if ((properties ?? resolve(items).properties) !== undefined) return undefined;
    const inner = Object.entries(errors).find(([field]) => field.startsWith(`${name}.`));
    return inner?.join(': ');
  }

  const showField = (name: string) => (
    <SchemaField
      key={name}
      name={name}
      schema={schemaOf(name)}
      value={values[name]}
      isRequired={schema.required?.includes(name) ?? false}
      error={errors[name] ?? errorBelow(name)}
      errors={errors}
      onChange={(value) => setValues((old) => ({ ...old, [name]: value }))}
    />
  );
  const others = fields.filter((name) => !main.includes(name));
  const isWrong = others.some((name) => Object.keys(errors).some((field) => field.split('.')[0] === name));
  return (
    <Form ref={form} onSubmit={() => mutation.mutate(converted())} className="form" noValidate aria-busy={isPending}>
      {fields.filter((name) => main.includes(name)).map(showField)}
      {others.length > 0 && (
        <details open={isWrong || undefined}>
          <summary>More fields</summary>
          <div className="form">{others.map(showField)}</div>
        </details>
      )}
      {children?.(converted(), (changed) => setValues((old) => ({ ...old, ...changed })), { schema, errors })}
      {Object.keys(errors).length === 0 ? (
        <Failure error={error} />
      ) : (
        <p role="alert" className="row failure">
          Not saved: see the messages beside the fields.{' '}
          {unassigned.map(([field, text]) => `${field}: ${text}`).join(' ')}
        </p>
      )}
      <FormActions label={submitLabel} disabled={isPending} onCancel={onCancel}>
        {callOf && <CurlButton callOf={() => callOf(converted())} />}
      </FormActions>
    </Form>
  );
}
