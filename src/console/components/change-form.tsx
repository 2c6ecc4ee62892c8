import type { Schema } from '../api/document.js';
import { fieldsOf, SchemaForm, type Values } from './form.js';

interface ChangeFormProps {
  /** Schema of the body that changes one object. */
  schema: Schema;
  /** Gets the fields that were filled in. */
  onSubmit(body: Values): Promise<unknown>;
  onCancel: () => void;
}

/** A form for a change of several objects: no field is required, and there is no name, which only one object can have. */
export function ChangeForm({ schema, onSubmit, onCancel }: ChangeFormProps) {
  return (
    <SchemaForm
      schema={{ ...schema, required: [] }}
      fields={fieldsOf(schema).filter((name) => name !== 'name')}
      submitLabel="Preview"
      onSubmit={(values) =>
        onSubmit(Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)))
      }
      onCancel={onCancel}
    />
  );
}
