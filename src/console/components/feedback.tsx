import { type ReactNode, useSyncExternalStore } from 'react';
import { describeError } from '../api/errors.js';

const shown_ms = 6000;
const messages: { texts: readonly { id: number; text: string }[]; count: number } = { texts: [], count: 0 };
const listeners = new Set<() => void>();

function change(texts: typeof messages.texts): void {
  messages.texts = texts;
  for (const listener of listeners) listener();
}

/** Shows a message for some seconds, and reads it out to screen readers. */
export function announce(text: string): void {
  const id = ++messages.count;
  change([...messages.texts, { id, text }]);
  setTimeout(() => change(messages.texts.filter((message) => message.id !== id)), shown_ms);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The place of messages. */
export function Announcements() {
  const texts = useSyncExternalStore(subscribe, () => messages.texts);
  return (
    <div role="status" className="announcements">
      {texts.map(({ id, text }) => (
        <p key={id}>{text}</p>
      ))}
    </div>
  );
}

/** A failure in place of what could not be read. */
export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <div role="alert" className="failure">
      <p>{describeError(error)}</p>
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Keeps the place of something that is being read. */
export function Loading({ height = '8rem' }: { height?: string }) {
  return <div className="loading" style={{ minHeight: height }} aria-busy="true" />;
}

interface Answer<T> {
  data: T | undefined;
  error: unknown;
  refetch(): unknown;
}

/** Shows the data of a query, its failure, or that it is being read. */
export function Loaded<T>({ of, children, height }: { of: Answer<T>; children(data: T): ReactNode; height?: string }) {
  if (of.data !== undefined) return children(of.data);
  if (of.error) return <Failure error={of.error} onRetry={() => void of.refetch()} />;
  return <Loading {...(height && { height })} />;
}
