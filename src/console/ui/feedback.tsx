import './feedback.css';
import type { ReactNode } from 'react';
import { describeError, isTemporary } from '../api/errors.js';
import { announcements } from '../lib/announcements.js';
import { useStore } from '../lib/store.js';
import { Button } from './button.js';

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
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
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
