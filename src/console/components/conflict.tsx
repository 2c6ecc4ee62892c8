import { useState } from 'react';
import { type FieldConflict, findConflicts, type Values } from '../api/changes.js';
import { describeError } from '../api/errors.js';
import { isDeepEqual } from '../compare.js';
import { labelOf } from '../format.js';
import { Dialog } from './dialog.js';

interface ConflictProps {
  base: Values;
  /** The object as it is stored now. */
  theirs: Values;
  changes: Values;
  /** Saves the remaining changes on top of the newer version. */
  onResolve(changes: Values): Promise<void>;
  onClose(): void;
}

/** Shows the changes of both sides, and lets people choose field by field. */
export function ConflictDialog({ base, theirs, changes, onResolve, onClose }: ConflictProps) {
  const conflicts = findConflicts(base, theirs, changes);
  const [kept, setKept] = useState<ReadonlySet<string>>(new Set());
  const [error, setError] = useState<unknown>();
  const untouched = Object.keys(theirs).filter(
    (field) => !(field in changes) && !isDeepEqual(base[field], theirs[field]) && !derived.has(field),
  );

  async function save(): Promise<void> {
    const remaining = Object.entries(changes).filter(
      ([field]) => !conflicts.some((conflict) => conflict.field === field) || kept.has(field),
    );
    try {
      await onResolve(Object.fromEntries(remaining));
    } catch (failure) {
      setError(failure);
    }
  }

  return (
    <Dialog title="Changed meanwhile" onClose={onClose} isWide>
      <div className="stack">
        <p>
          {String(theirs.updater ?? 'Somebody')} has changed this object since you opened it. Nothing has been saved
          yet.
        </p>
        {conflicts.map((conflict) => (
          <Choice
            key={conflict.field}
            conflict={conflict}
            isMine={kept.has(conflict.field)}
            onChoose={(isMine) => {
              const changed = new Set(kept);
              if (isMine) changed.add(conflict.field);
              else changed.delete(conflict.field);
              setKept(changed);
            }}
          />
        ))}
        {untouched.length > 0 && <p>Also changed by the other side, and kept: {untouched.map(labelOf).join(', ')}.</p>}
        {error !== undefined && (
          <p role="alert" className="failure">
            {describeError(error)}
          </p>
        )}
        <div className="actions">
          <button type="button" className="primary" onClick={() => void save()}>
            Save this choice
          </button>
          <button type="button" onClick={onClose}>
            Back to the form
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** Fields that change with every update. */
const derived = new Set(['version', 'updated_at', 'updater', 'status']);

interface ChoiceProps {
  conflict: FieldConflict;
  isMine: boolean;
  onChoose(isMine: boolean): void;
}

function Choice({ conflict: { field, base, theirs, mine }, isMine, onChoose }: ChoiceProps) {
  return (
    <fieldset className="choice">
      <legend>{labelOf(field)}</legend>
      <p>
        <span className="muted">Before: </span>
        {formatField(base)}
      </p>
      <label>
        <input type="radio" name={`choice-${field}`} checked={!isMine} onChange={() => onChoose(false)} />
        <span className="muted">Theirs: </span>
        {formatField(theirs)}
      </label>
      <label>
        <input type="radio" name={`choice-${field}`} checked={isMine} onChange={() => onChoose(true)} />
        <span className="muted">Mine: </span>
        {formatField(mine)}
      </label>
    </fieldset>
  );
}

function formatField(value: unknown): string {
  if (value === undefined || value === null) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
