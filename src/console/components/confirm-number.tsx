import { type ReactNode, type SubmitEvent, useId, useState } from 'react';

interface ConfirmNumberProps {
  count: number;
  label: string;
  isDangerous: boolean;
  onConfirm(): void;
  onCancel(): void;
  children: ReactNode;
}

/** A form that is complete once the number of objects has been typed. */
export function ConfirmNumber({ count, label, isDangerous, onConfirm, onCancel, children }: ConfirmNumberProps) {
  const [typed, setTyped] = useState('');
  const input = useId();
  const isConfirmed = typed === String(count);
  function submit(event: SubmitEvent): void {
    event.preventDefault();
    if (isConfirmed) onConfirm();
  }
  return (
    <form className="form" onSubmit={submit}>
      {children}
      <div className="field">
        <label htmlFor={input}>Type the number ({count}) to confirm</label>
        <input
          id={input}
          inputMode="numeric"
          autoComplete="off"
          value={typed}
          onChange={({ target }) => setTyped(target.value)}
        />
      </div>
      <div className="actions">
        <button type="submit" className={isDangerous ? 'danger' : 'primary'} disabled={!isConfirmed}>
          {label}
        </button>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      </div>
    </form>
  );
}
