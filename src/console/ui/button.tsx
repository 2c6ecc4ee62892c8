import type { ReactNode } from 'react';

export interface ButtonProps {
  onClick(): unknown;
  kind?: 'primary' | 'danger' | 'quiet';
  /** The object that the button is for, read out by screen readers. */
  of?: string;
  disabled?: boolean;
  title?: string | undefined;
  children: ReactNode;
}

export function Button({ onClick, kind, of, children, ...rest }: ButtonProps) {
  return (
    <button type="button" className={kind} onClick={() => void onClick()} {...rest}>
      {children}
      {of !== undefined && <span className="hidden"> {of}</span>}
    </button>
  );
}

/** A button that switches something on and off. */
export function Toggle({
  isOn,
  onChange,
  children,
}: {
  isOn: boolean;
  onChange(isOn: boolean): void;
  children: string;
}) {
  return (
    <button type="button" className="toggle" aria-pressed={isOn} onClick={() => onChange(!isOn)}>
      {children}
    </button>
  );
}

interface FormActionsProps {
  label: string;
  kind?: 'primary' | 'danger';
  disabled?: boolean;
  onCancel?: (() => void) | undefined;
  cancelLabel?: string;
  /** More buttons. */
  children?: ReactNode;
}

/** The buttons at the end of a form: one submits it, the other gives it up. */
export function FormActions({ label, kind = 'primary', disabled, onCancel, children, ...props }: FormActionsProps) {
  const { cancelLabel = 'Cancel' } = props;
  return (
    <div className="row">
      <button type="submit" className={kind} disabled={disabled}>
        {label}
      </button>
      {onCancel && <Button onClick={onCancel}>{cancelLabel}</Button>}
      {children}
    </div>
  );
}
