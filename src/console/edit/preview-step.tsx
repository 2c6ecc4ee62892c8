import { useMutation } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import type { Schema } from '../api/document.js';
import { fieldsOf, SchemaForm, type Values } from '../forms/form.js';
import { Button } from '../ui/button.js';
import { Failure } from '../ui/page.js';

export type BulkKind = 'change' | 'delete';

interface PreviewStepProps {
  kind: BulkKind;
  schema: Schema;
  /** Gets the fields that were filled in, undefined for a deletion. */
  onPreview(body: Values | undefined): Promise<void>;
  onCancel(): void;
  /** The consequence of a deletion. */
  children: ReactNode;
}

/**
 * First step of a change or deletion of several objects. In the form of a change no field is required, and there is no name,
 * which only one object can have.
 */
export function PreviewStep({ kind, schema, onPreview, onCancel, children }: PreviewStepProps) {
  const preview = useMutation({ mutationFn: onPreview });
  if (kind === 'change') {
    const keepFilled = (values: Values) =>
      Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
    return (
      <SchemaForm
        schema={{ ...schema, required: [] }}
        fields={fieldsOf(schema).filter((name) => name !== 'name')}
        submitLabel="Preview"
        mutation={{ ...preview, mutate: (values) => preview.mutate(keepFilled(values)) }}
        onCancel={onCancel}
      />
    );
  }
  return (
    <div className="stack">
      {children}
      <Failure error={preview.error} />
      <div className="row">
        <Button label="Preview" kind="primary" onClick={() => preview.mutate(undefined)} />
        <Button label="Cancel" onClick={onCancel} />
      </div>
    </div>
  );
}
