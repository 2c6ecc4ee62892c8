import './page.css';
import { type ReactNode, useEffect, useRef } from 'react';
import { describeError, isTemporary } from '../api/errors.js';
import { announcements } from '../lib/announcements.js';
import { useStore } from '../lib/store.js';
import { Button } from './button.js';

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

export function Announcements() {
  return (
    <div role="status" className="announcements">
      {useStore(announcements).map(({ id, text }) => (
        <p key={id}>{text}</p>
      ))}
    </div>
  );
}

/** A failure, if there is one, in place of what could not be read or done. */
export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  if (error === undefined || error === null) return null;
  return (
    <div role="alert" className="row failure">
      <p>{describeError(error)}</p>
      {onRetry && <Button label="Try again" onClick={onRetry} />}
    </div>
  );
}

/** Keeps the place of something that is being read. */
export function Loading({ height = '8rem' }: { height?: string | undefined }) {
  return <div className="loading" style={{ minHeight: height }} aria-busy="true" />;
}

interface Answer<T> {
  data: T | undefined;
  error: unknown;
  refetch(): unknown;
}

/** Shows the data of a query, below the failure to read it again; its failure, or that it is being read. */
export function Loaded<T>({ of, children, height }: { of: Answer<T>; children(data: T): ReactNode; height?: string }) {
  if (of.data !== undefined)
    return (
      <>
        {/* the banner of the connection says what is temporary */}
        {!isTemporary(of.error) && <Failure error={of.error} />}
        {children(of.data)}
      </>
    );
  if (of.error) return <Failure error={of.error} onRetry={() => void of.refetch()} />;
  return <Loading height={height} />;
}
