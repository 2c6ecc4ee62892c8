import './page.css';
import { type ReactNode, useEffect, useRef } from 'react';

interface PageProps {
  title: string;
  /** Above the title: the way to here. */
  trail?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

/** A view with its title. The title takes the focus, so that screen readers and the keyboard begin there. */
export function Page({ title, trail, actions, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Device platform`;
    heading.current?.focus({ preventScroll: true });
  }, [title]);
  return (
    <>
      <header className="row spread page-head">
        <div>
          {trail}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
        </div>
        {actions && <div className="row">{actions}</div>}
      </header>
      {children}
    </>
  );
}

export function Panel({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <section className="card panel">
      <header className="row spread panel-head">
        <h2>{title}</h2>
        {actions && <div className="row">{actions}</div>}
      </header>
      {children}
    </section>
  );
}

interface FactsProps {
  entries: readonly (readonly [name: string, value: ReactNode])[];
  label?: string;
}

export function Facts({ entries, label }: FactsProps) {
  return (
    <dl className="facts" aria-label={label}>
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
