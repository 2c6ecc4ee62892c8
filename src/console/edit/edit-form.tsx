import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useApiMutation } from '../api/queries.js';
import type { ResourceType, StoredObject } from '../api/resources.js';
import { parentFields } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { type FormExtra, fieldsOf, SchemaForm, type Values } from '../forms/form.js';
import { findChanges } from './changes.js';
import { ConflictDialog } from './conflict.js';

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

/** Changes that collide with a newer version of the object. */
interface Collision {
  theirs: StoredObject;
  changes: Values;
}

/** Edits an object. Only what was changed is sent, with the version that was shown; a newer one opens a dialog. */
export function EditForm({ type, object, fields, hidden = [], main, onSaved, ...rest }: EditFormProps) {
  const [base] = useState(object);
  const [collision, setCollision] = useState<Collision>();
  const path = pathOf(type.plural, base.id_developer);
  const schema = useSession().bodyOf('PUT', type.object_path);
  const shown = [...fields, ...hidden];
  // a rule may be without a place, which others only change
  const kept = type.name === 'alarmrule' ? [] : parentFields;
  const changesOf = (values: Values) => findChanges(base, values, shown, kept);

  const save = useApiMutation({
    async run({ changes, version }: { changes: Values; version: number }): Promise<Collision | undefined> {
      if (Object.keys(changes).length === 0) return undefined;
      try {
        await request('PUT', path, { body: { ...changes, version } });
        return undefined;
      } catch (error) {
        if (!(error instanceof RequestError) || error.code !== 4005) throw error;
        return { theirs: await request<StoredObject>('GET', path), changes };
      }
    },
    message: (collided) => (collided === undefined ? `Saved ${base.name}.` : undefined),
    onDone(collided) {
      setCollision(collided);
      if (collided === undefined) onSaved();
    },
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
        mutation={{
          ...save,
          mutate: (values) => save.mutate({ changes: changesOf(values), version: base.version }),
        }}
        callOf={(values) => ({
          method: 'PUT',
          path,
          body: { ...changesOf(values), version: base.version },
        })}
      />
      {collision && (
        <ConflictDialog
          {...collision}
          base={base}
          fields={fieldsOf(schema)}
          error={save.error}
          onClose={() => setCollision(undefined)}
          onResolve={(changes) => save.mutate({ changes, version: collision.theirs.version })}
        />
      )}
    </>
  );
}
