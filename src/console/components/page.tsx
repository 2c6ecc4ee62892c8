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
      <header className="page-head">
        <div>
          {trail}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
        </div>
        {actions && <div className="actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

/** A titled part of a view. */
export function Panel({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <section className="panel">
      <header className="panel-head">
        <h2>{title}</h2>
        {actions && <div className="actions">{actions}</div>}
      </header>
      {children}
    </section>
  );
}
