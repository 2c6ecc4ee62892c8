import { type ReactNode, useEffect, useId, useRef } from 'react';

interface DialogProps {
  title: string;
  onClose(): void;
  children: ReactNode;
  isWide?: boolean;
}

/** A modal dialog. The element keeps the focus inside, closes on Escape and returns the focus afterwards. */
export function Dialog({ title, onClose, children, isWide = false }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={heading} onClose={onClose} className={isWide ? 'wide' : undefined}>
      <header className="dialog-head">
        <h2 id={heading}>{title}</h2>
        <button type="button" className="quiet" onClick={onClose} aria-label="Close">
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}
