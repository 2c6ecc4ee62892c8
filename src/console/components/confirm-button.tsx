import { type ReactNode, useState } from 'react';
import { Dialog } from './dialog.js';

interface ConfirmButtonProps {
  /** Label of the button, which ends in "…", and of the one in the dialog. */
  label: string;
  title: string;
  className?: string;
  onConfirm(): void;
  /** Consequence, shown in the dialog. */
  children: ReactNode;
}

/** A button whose effect cannot be undone: it asks before. */
export function ConfirmButton({ label, title, className, onConfirm, children }: ConfirmButtonProps) {
  const [isAsking, setAsking] = useState(false);
  const close = () => setAsking(false);
  return (
    <>
      <button type="button" className={className} onClick={() => setAsking(true)}>
        {label}…
      </button>
      {isAsking && (
        <Dialog title={title} onClose={close}>
          <div className="stack">
            <p>{children}</p>
            <div className="actions">
              <button
                type="button"
                className="danger"
                onClick={() => {
                  close();
                  onConfirm();
                }}
              >
                {label}
              </button>
              <button type="button" onClick={close}>
                Cancel
              </button>
            </div>
          </div>
        </Dialog>
      )}
    </>
  );
}
