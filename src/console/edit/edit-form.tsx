import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { useSession } from '../api/hooks.js';
import { parentFields, type ResourceType, type StoredObject } from '../api/resources.js';
import { type FormExtra, fieldsOf, SchemaForm, type Values } from '../forms/form.js';
import { findChanges } from './changes.js';
import { useVersionedSave } from './conflict.js';

interface EditFormProps {
  type: ResourceType;
  object: StoredObject;
  fields: readonly string[];
  /** Fields that the part below has. */
  hidden?: readonly string[];
  main?: readonly string[] | undefined;
  onSaved(): void;
  onCancel?: () => void;
  children?: FormExtra | undefined;
}

/** Edits an object. Only what was changed is sent, with the version that was shown; a newer one opens a dialog. */
export function EditForm({ type, object, fields, hidden = [], main, onSaved, ...rest }: EditFormProps) {
  const [base] = useState(object);
  const path = pathOf(type.plural, base.id_developer);
  const schema = useSession().bodyOf('PUT', type.object_path);
  const shown = [...fields, ...hidden];
  // a rule may be without a place, which others only change
  const kept = type.name === 'alarmrule' ? [] : parentFields;
  const changesOf = (values: Values) => findChanges(base, values, shown, kept);
  const { mutation, dialog } = useVersionedSave({
    base,
    valuesOf: (stored) => stored,
    fields: fieldsOf(schema),
    changesOf,
    read: () => request<StoredObject>('GET', path),
    async write(changes, { version }) {
      if (Object.keys(changes).length > 0) await request('PUT', path, { body: { ...changes, version } });
    },
    message: `Saved ${base.name}.`,
    onSaved,
  });
  return (
    <>
      <SchemaForm
        schema={schema}
        {...rest}
        fields={fields}
        main={main}
        initial={Object.fromEntries(shown.map((field) => [field, base[field]]))}
        submitLabel="Save"
        mutation={mutation}
        callOf={(values) => ({ method: 'PUT', path, body: { ...changesOf(values), version: base.version } })}
      />
      {dialog}
    </>
  );
}
