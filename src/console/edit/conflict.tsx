import { useState } from 'react';
import type { Values } from '../forms/form.js';
import { isDeepEqual } from '../lib/compare.js';
import { labelOf } from '../lib/format.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Failure } from '../ui/page.js';
import { type FieldConflict, findConflicts } from './changes.js';

interface ConflictProps {
  base: Values;
  /** The object as it is stored now. */
  theirs: Values;
  changes: Values;
  /** Those that people edit; default: all. */
  fields?: readonly string[];
  error: unknown;
  /** Saves the remaining changes on top of the newer version. */
  onResolve(changes: Values): void;
  onClose(): void;
}

/** Shows the changes of both sides, and lets people choose field by field. */
export function ConflictDialog({ base, theirs, changes, error, onResolve, onClose, ...props }: ConflictProps) {
  const conflicts = findConflicts(base, theirs, changes);
  const [kept, setKept] = useState<ReadonlySet<string>>(new Set());
  const { fields = Object.keys({ ...base, ...theirs }) } = props;
  const untouched = fields.filter((field) => !(field in changes) && !isDeepEqual(base[field], theirs[field]));

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
        {conflicts.map((conflict) => (
          <Choice
            key={conflict.field}
            conflict={conflict}
            isMine={kept.has(conflict.field)}
            onChoose={(isMine) => {
              const others = [...kept].filter((field) => field !== conflict.field);
              setKept(new Set(isMine ? [...others, conflict.field] : others));
            }}
          />
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
          <Button kind="primary" onClick={save}>
            Save this choice
          </Button>
          <Button onClick={onClose}>Back to the form</Button>
        </div>
      </div>
    </Dialog>
  );
}

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
      {[
        { side: 'Theirs', value: theirs, isChosen: !isMine },
        { side: 'Mine', value: mine, isChosen: isMine },
      ].map(({ side, value, isChosen }) => (
        <label key={side}>
          <input type="radio" name={`choice-${field}`} checked={isChosen} onChange={() => onChoose(side === 'Mine')} />
          <span className="muted">{side}: </span>
          {formatField(value)}
        </label>
      ))}
    </fieldset>
  );
}

function formatField(value: unknown): string {
  if (value === undefined || value === null) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
