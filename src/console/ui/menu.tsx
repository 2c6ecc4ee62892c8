import './menu.css';
import { type ReactNode, useRef } from 'react';

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
