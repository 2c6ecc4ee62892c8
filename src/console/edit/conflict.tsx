import { type ReactNode, useState } from 'react';
import { RequestError } from '../api/errors.js';
import { useApiMutation } from '../api/hooks.js';
import type { FormMutation, Values } from '../forms/form.js';
import { isDeepEqual } from '../lib/compare.js';
import { labelOf } from '../lib/format.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Failure } from '../ui/page.js';
import { findConflicts } from './changes.js';

interface VersionedSave<T> {
  /** The object with the version that was shown. */
  base: T;
  /** The part of an object that people edit. */
  valuesOf(object: T): Values;
  /** Fields that people edit; default: all. */
  fields?: readonly string[];
  /** Finds what a form has changed in `base`. @throws RequestError that names what is wrong */
  changesOf(edited: Values): Values;
  read(): Promise<T>;
  /** Changes `onto`, unless there is a newer version. */
  write(changes: Values, onto: T): Promise<unknown>;
  /** Announced after success. */
  message: string;
  onSaved(): void;
}

/** Saves what a form has changed. If the object has changed since, the dialog shows both changes. */
export function useVersionedSave<T>(options: VersionedSave<T>): { mutation: FormMutation; dialog: ReactNode } {
  const { base, valuesOf, fields, changesOf, read, write, message, onSaved } = options;
  const [collision, setCollision] = useState<{ theirs: T; changes: Values }>();
  const save = useApiMutation({
    async run({ getChanges, onto }: { getChanges(): Values; onto: T }) {
      const changes = getChanges();
      try {
        await write(changes, onto);
        return undefined;
      } catch (error) {
        if (!(error instanceof RequestError) || error.code !== 4005) throw error;
        return { theirs: await read(), changes };
      }
    },
    message: (collided) => (collided === undefined ? message : undefined),
    onDone(collided) {
      setCollision(collided);
      if (collided === undefined) onSaved();
    },
  });
  const mutate = (edited: Values) => save.mutate({ getChanges: () => changesOf(edited), onto: base });
  const dialog = collision && (
    <ConflictDialog
      base={valuesOf(base)}
      theirs={valuesOf(collision.theirs)}
      changes={collision.changes}
      fields={fields}
      error={save.error}
      onResolve={(changes) => save.mutate({ getChanges: () => changes, onto: collision.theirs })}
      onClose={() => setCollision(undefined)}
    />
  );
  return { mutation: { ...save, mutate }, dialog };
}

interface ConflictProps {
  base: Values;
  /** The object as it is stored now. */
  theirs: Values;
  changes: Values;
  /** Default: all. */
  fields: readonly string[] | undefined;
  error: unknown;
  /** Saves the remaining changes on top of the newer version. */
  onResolve(changes: Values): void;
  onClose(): void;
}

/** Shows the changes of both sides, and lets people choose field by field. */
function ConflictDialog({ base, theirs, changes, error, onResolve, onClose, ...props }: ConflictProps) {
  const conflicts = findConflicts(base, theirs, changes);
  const [kept, setKept] = useState<ReadonlySet<string>>(new Set());
  const { fields = Object.keys({ ...base, ...theirs }) } = props;
  const untouched = fields.filter((field) => !(field in changes) && !isDeepEqual(base[field], theirs[field]));

  function choose(field: string, isMine: boolean): void {
    const others = [...kept].filter((other) => other !== field);
    setKept(new Set(isMine ? [...others, field] : others));
  }

  function save(): void {
    const dropped = conflicts.filter(({ field }) => !kept.has(field)).map(({ field }) => field);
    onResolve(Object.fromEntries(Object.entries(changes).filter(([field]) => !dropped.includes(field))));
  }

  return (
    <Dialog title="Changed meanwhile" onClose={onClose} isWide>
      <div className="stack">
        <p>
          {String(theirs.updater ?? 'Somebody')} has changed this object since you opened it. Nothing has been saved
          yet.
        </p>
        {conflicts.map(({ field, ...conflict }) => (
          <fieldset key={field} className="choice">
            <legend>{labelOf(field)}</legend>
            <p>
              <span className="muted">Before: </span>
              {formatField(conflict.base)}
            </p>
            {[
              { side: 'Theirs', value: conflict.theirs, isMine: false },
              { side: 'Mine', value: conflict.mine, isMine: true },
            ].map(({ side, value, isMine }) => (
              <label key={side}>
                <input
                  type="radio"
                  name={`choice-${field}`}
                  checked={kept.has(field) === isMine}
                  onChange={() => choose(field, isMine)}
                />
                <span className="muted">{side}: </span>
                {formatField(value)}
              </label>
            ))}
          </fieldset>
        ))}
        {untouched.length > 0 && (
          <>
            <p>Also changed by the other side, and kept:</p>
            <ul>
              {untouched.map((field) => (
                <li key={field}>
                  {labelOf(field)}: {formatField(base[field])} → {formatField(theirs[field])}
                </li>
              ))}
            </ul>
          </>
        )}
        <Failure error={error} />
        <div className="row">
          <Button label="Save this choice" kind="primary" onClick={save} />
          <Button label="Back to the form" onClick={onClose} />
        </div>
      </div>
    </Dialog>
  );
}

function formatField(value: unknown): string {
  if (value === undefined || value === null) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
