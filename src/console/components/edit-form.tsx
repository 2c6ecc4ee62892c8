import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { findChanges, type Values } from '../api/changes.js';
import { pathOf, request } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { RequestError } from '../api/errors.js';
import { useSession } from '../api/queries.js';
import { type ResourceType, type StoredObject, templateOf } from '../resources.js';
import { ConflictDialog } from './conflict.js';
import { announce } from './feedback.js';
import { fieldsOf, SchemaForm } from './form.js';

interface EditFormProps {
  type: ResourceType;
  object: StoredObject;
  /** Fields to show; default: all that an update takes. */
  fields?: readonly string[];
  onSaved(): void;
  onCancel?: () => void;
}

interface Conflict {
  theirs: StoredObject;
  changes: Values;
}

/** Edits an object. Only what was changed is sent, with the version that was shown; a newer one opens a dialog. */
export function EditForm({ type, object, fields, onSaved, onCancel }: EditFormProps) {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [base] = useState(object);
  const [conflict, setConflict] = useState<Conflict>();
  const path = pathOf(type.plural, base.id_developer);
  const schema = bodySchemaOf(document, 'put', templateOf(type)) ?? {};
  const shown = fields ?? fieldsOf(schema);

  async function save(changes: Values, version: number): Promise<void> {
    if (Object.keys(changes).length > 0) {
      await request('PUT', path, { body: { ...changes, version } });
      announce(`Saved ${base.name}.`);
    }
    await queryClient.invalidateQueries();
    onSaved();
  }

  async function submit(values: Values): Promise<void> {
    const changes = findChanges(base, values, shown);
    try {
      await save(changes, base.version);
    } catch (error) {
      if (!(error instanceof RequestError) || error.code !== 4005) throw error;
      setConflict({ theirs: await request<StoredObject>('GET', path), changes });
    }
  }

  const initial = Object.fromEntries(shown.map((field) => [field, base[field]]));
  return (
    <>
      <SchemaForm
        schema={schema}
        fields={shown}
        initial={initial}
        submitLabel="Save"
        onSubmit={submit}
        {...(onCancel && { onCancel })}
      />
      {conflict && (
        <ConflictDialog
          base={base}
          theirs={conflict.theirs}
          changes={conflict.changes}
          onClose={() => setConflict(undefined)}
          onResolve={async (changes) => {
            try {
              await save(changes, conflict.theirs.version);
              setConflict(undefined);
            } catch (error) {
              if (!(error instanceof RequestError) || error.code !== 4005) throw error;
              setConflict({ theirs: await request<StoredObject>('GET', path), changes });
            }
          }}
        />
      )}
    </>
  );
}
