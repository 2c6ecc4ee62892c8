import { type ReactNode, type SubmitEvent, useEffect, useRef, useState } from 'react';
import { resolve, type Schema, typeOf } from '../api/document.js';
import { describeError, RequestError } from '../api/errors.js';
import { useSession } from '../api/queries.js';
import { SchemaField, toNumber } from './fields.js';

export type Values = Record<string, unknown>;

interface FormProps {
  schema: Schema;
  initial?: Values;
  /** Fields to show, in order; default: all. */
  fields?: readonly string[];
  submitLabel: string;
  onSubmit(values: Values): Promise<unknown>;
  onCancel?: () => void;
  children?: ReactNode;
}

/** Fields that are accepted by the interface but are other names or results of fields. */
const unshown = new Set(['id_assets', 'version']);

/** The fields of a schema that people fill in. */
export function fieldsOf(schema: Schema): string[] {
  const names = Object.keys(schema.properties ?? {}).filter((name) => !unshown.has(name));
  return [
    ...names.filter((name) => schema.required?.includes(name)),
    ...names.filter((name) => !schema.required?.includes(name)),
  ];
}

/**
 * A form made from a schema. What the service finds wrong is shown beside the field it names, and the first such field
 * takes the focus.
 */
export function SchemaForm({ schema, initial = {}, fields, submitLabel, onSubmit, onCancel, children }: FormProps) {
  const { document } = useSession();
  const [values, setValues] = useState<Values>(initial);
  const [failure, setFailure] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const names = fields ?? fieldsOf(schema);
  const errors = failure instanceof RequestError ? failure.fieldMessages : {};
  const isShown = (field: string) => names.some((name) => field === name || field.startsWith(`${name}.`));
  const unassigned = Object.entries(errors).filter(([field]) => !isShown(field));

  useEffect(() => {
    if (failure !== undefined) form.current?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus();
  }, [failure]);

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setFailure(undefined);
    try {
      await onSubmit(convertNumbers(values, schema, (inner) => resolve(document, inner)));
    } catch (error) {
      setFailure(error);
    } finally {
      setBusy(false);
    }
  }

  return (
    <form ref={form} onSubmit={submit} className="form" noValidate aria-busy={isBusy}>
      {names.map((name) => (
        <SchemaField
          key={name}
          name={name}
          schema={schema.properties?.[name] ?? {}}
          value={values[name]}
          isRequired={schema.required?.includes(name) ?? false}
          error={errors[name] ?? errorBelow(errors, name, schema, (inner) => resolve(document, inner))}
          errors={errors}
          onChange={(value) => setValues((old) => ({ ...old, [name]: value }))}
        />
      ))}
      {children}
      {failure !== undefined && (
        <div role="alert" className="failure">
          {Object.keys(errors).length === 0 ? (
            <p>{describeError(failure)}</p>
          ) : (
            <p>
              Not saved: see the messages beside the fields.{' '}
              {unassigned.map(([field, text]) => `${field}: ${text}`).join(' ')}
            </p>
          )}
        </div>
      )}
      <div className="actions">
        <button type="submit" className="primary" disabled={isBusy}>
          {submitLabel}
        </button>
        {onCancel && (
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
        )}
      </div>
    </form>
  );
}

type Resolve = (schema: Schema | undefined) => Schema;

/** Finds the first message about something inside of free-form JSON, which has one field in the form. */
function errorBelow(
  errors: Record<string, string>,
  name: string,
  schema: Schema,
  resolved: Resolve,
): string | undefined {
  if (resolved(schema.properties?.[name]).properties !== undefined) return undefined;
  const [found] = Object.entries(errors).filter(([field]) => field.startsWith(`${name}.`));
  return found && `${found[0]}: ${found[1]}`;
}

/** Converts text that was typed into number fields, and leaves what is no number for the service to reject. */
function convertNumbers(values: Values, schema: Schema, resolved: Resolve): Values {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => {
      const type = typeOf(resolved(schema.properties?.[name]));
      return [name, type === 'number' || type === 'integer' ? toNumber(value) : value];
    }),
  );
}
