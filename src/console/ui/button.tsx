import './menu.css';
import './command.css';
import { type ReactNode, useRef } from 'react';
import { announce } from '../lib/announcements.js';

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

interface ToggleProps {
  isOn: boolean;
  onChange(isOn: boolean): void;
  children: string;
}

/** A button that switches something on and off. */
export function Toggle({ isOn, onChange, children }: ToggleProps) {
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

interface MenuProps {
  label: string;
  /** Stays open after a click inside. */
  isKept?: boolean;
  children: ReactNode;
}

/** Buttons or choices behind a button; it closes with Escape, after a click on a button, and when the focus leaves it. */
export function Menu({ label, isKept = false, children }: MenuProps) {
  const details = useRef<HTMLDetailsElement>(null);
  const close = () => details.current?.removeAttribute('open');
  // what opens a dialog gets the focus back from it, and must be visible then
  const leave = () => {
    details.current?.querySelector('summary')?.focus();
    close();
  };
  return (
    <details
      ref={details}
      className="menu-list"
      onKeyDown={({ key }) => {
        if (key === 'Escape') leave();
      }}
      onBlur={({ relatedTarget, currentTarget }) => {
        if (!currentTarget.contains(relatedTarget)) close();
      }}
    >
      <summary>{label}</summary>
      {/** biome-ignore lint/a11y/noStaticElementInteractions lint/a11y/useKeyWithClickEvents: the buttons inside have the keys */}
      <div className="card floating" tabIndex={-1} onClick={isKept ? undefined : leave}>
        {children}
      </div>
    </details>
  );
}

/** A command or a secret, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div className="command">
      <pre>{text}</pre>
      <Button onClick={() => copy(text)}>Copy</Button>
    </div>
  );
}

/** The clipboard is there for secure origins only: https, or this machine. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    announce('Copied.');
  } catch {
    announce('The browser does not let this page copy: select the text instead.');
  }
}
