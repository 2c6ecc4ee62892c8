import './menu.css';
import { type ReactNode, useRef } from 'react';

/** Buttons behind one; it closes with Escape, after a choice, and when the focus leaves it. */
export function Menu({ label, children }: { label: string; children: ReactNode }) {
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
      <div className="card floating" onClick={leave}>
        {children}
      </div>
    </details>
  );
}
