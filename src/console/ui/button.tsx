import './button.css';
import { createLink } from '@tanstack/react-router';
import { type ComponentProps, type ReactNode, useRef } from 'react';
import { announce } from '../lib/announcements.js';

export interface ButtonProps {
  label: string;
  onClick(): unknown;
  kind?: 'primary' | 'danger' | 'quiet';
  /** The object that the button is for, read out by screen readers. */
  of?: string;
  disabled?: boolean;
  title?: string | undefined;
}

export function Button({ label, onClick, kind, of, ...rest }: ButtonProps) {
  return (
    <button type="button" className={kind} onClick={() => void onClick()} {...rest}>
      {label}
      {of !== undefined && <span className="hidden"> {of}</span>}
    </button>
  );
}

interface AnchorProps extends ComponentProps<'a'>, Pick<ButtonProps, 'label' | 'of'> {
  kind?: 'primary' | 'tab';
}

/** A link that looks like a button. */
export const LinkButton = createLink(({ label, of, kind, ...link }: AnchorProps) => (
  <a {...link} className={kind === undefined ? 'button' : `button ${kind}`}>
    {label}
    {of !== undefined && <span className="hidden"> {of}</span>}
  </a>
));

interface ToggleProps {
  label: string;
  isOn: boolean;
  onChange(isOn: boolean): void;
}

/** A button that switches something on and off. */
export function Toggle({ label, isOn, onChange }: ToggleProps) {
  return (
    <button type="button" className="toggle" aria-pressed={isOn} onClick={() => onChange(!isOn)}>
      {label}
    </button>
  );
}

interface FormProps extends Omit<ComponentProps<'form'>, 'onSubmit'> {
  onSubmit(): void;
}

/** A form that the page handles, in place of the browser. */
export function Form({ onSubmit, ...rest }: FormProps) {
  return (
    <form
      {...rest}
      onSubmit={(event) => {
        event.preventDefault();
        onSubmit();
      }}
    />
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
      {onCancel && <Button label={cancelLabel} onClick={onCancel} />}
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
      <summary className="button">{label}</summary>
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
      <Button label="Copy" onClick={() => copy(text)} />
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
