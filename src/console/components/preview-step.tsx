import type { ReactNode } from 'react';
import type { Schema } from '../api/document.js';
import { fieldsOf, SchemaForm, type Values } from './form.js';

interface PreviewStepProps {
  kind: 'change' | 'delete';
  /** Schema of the body that changes one object. */
  schema: Schema;
  /** Gets the fields that were filled in, undefined for a deletion. */
  onPreview(body: Values | undefined): Promise<void>;
  onCancel(): void;
  /** What a deletion does. */
  children: ReactNode;
}

/**
 * First step of a change or deletion of several objects. In the form of a change no field is required, and there is no name,
 * which only one object can have.
 */
export function PreviewStep({ kind, schema, onPreview, onCancel, children }: PreviewStepProps) {
  if (kind === 'change') {
    return (
      <SchemaForm
        schema={{ ...schema, required: [] }}
        fields={fieldsOf(schema).filter((name) => name !== 'name')}
        submitLabel="Preview"
        onSubmit={(values) =>
          onPreview(Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)))
        }
        onCancel={onCancel}
      />
    );
  }
  return (
    <div className="stack">
      {children}
      <div className="actions">
        <button type="button" className="primary" onClick={() => void onPreview(undefined)}>
          Preview
        </button>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      </div>
    </div>
  );
}
