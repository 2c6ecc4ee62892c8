import './dialog.css';
import { type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { Button, type ButtonProps, Command } from './button.js';

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
    // not on the button that closes it, which a space would press
    dialog?.querySelector<HTMLElement>('input, select, textarea')?.focus();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={heading} onClose={onClose} className={isWide ? 'wide' : undefined}>
      <div className="row spread dialog-head">
        <h2 id={heading}>{title}</h2>
        <button type="button" className="quiet" onClick={onClose} aria-label="Close">
          ✕
        </button>
      </div>
      {children}
    </dialog>
  );
}

interface DialogButtonProps extends Omit<ButtonProps, 'onClick'> {
  /** Title of the dialog; default: the label. */
  heading?: string;
  children(close: () => void): ReactNode;
}

export function DialogButton({ heading, children, ...button }: DialogButtonProps) {
  const [isOpen, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <Button {...button} onClick={() => setOpen(true)} />
      {isOpen && (
        <Dialog title={heading ?? button.label} onClose={close}>
          {children(close)}
        </Dialog>
      )}
    </>
  );
}

interface ConfirmButtonProps extends Omit<DialogButtonProps, 'children'> {
  onConfirm(): void;
  /** Consequence, shown in the dialog. */
  children: ReactNode;
}

/** A button whose effect cannot be undone: a dialog asks before. */
export function ConfirmButton({ label, onConfirm, children, ...rest }: ConfirmButtonProps) {
  return (
    <DialogButton label={`${label}…`} {...rest}>
      {(close) => (
        <div className="stack">
          <div>{children}</div>
          <div className="row">
            <Button
              label={label}
              kind="danger"
              onClick={() => {
                close();
                onConfirm();
              }}
            />
            <Button label="Cancel" onClick={close} />
          </div>
        </div>
      )}
    </DialogButton>
  );
}

interface SecretDialogProps {
  title: string;
  /** Undefined: there is none to show. */
  secret: string | undefined;
  onClose(): void;
}

/** Shows a secret that the service shows only once. */
export function SecretDialog({ title, secret, onClose }: SecretDialogProps) {
  if (secret === undefined) return null;
  return (
    <Dialog title={title} onClose={onClose}>
      <p>This is the only time it is shown.</p>
      <Command text={secret} />
    </Dialog>
  );
}
