import { useEffect, useId, useRef } from 'react';
import { formatBytes } from '../lib/format.js';
import { useStore } from '../lib/store.js';
import { Button } from './button.js';
import { downloads } from './download.js';

interface ProgressProps {
  label: string;
  /** Absent or 0: how long it takes is unknown. */
  value?: number;
  max?: number;
  onCancel?(): void;
}

/** Progress of a long operation, with a button that cancels it. */
export function Progress({ label, value, max, onCancel }: ProgressProps) {
  const id = useId();
  return (
    <div className="row">
      <label htmlFor={id}>{label}</label>
      <progress id={id} {...(value && { value, max })} />
      {onCancel && <Button label="Cancel" onClick={onCancel} />}
    </div>
  );
}

/** The downloads in progress, whatever view is shown. */
export function Downloads() {
  const running = useStore(downloads);
  if (running.length === 0) return null;
  return (
    <section className="card floating downloads" aria-label="Downloads">
      {running.map(({ id, name, received_bytes, cancel }) => (
        <Progress key={id} label={`${name}: ${formatBytes(received_bytes)}`} onCancel={cancel} />
      ))}
    </section>
  );
}

/** Returns a function that begins work with a signal, and one that cancels it, as the end of the component does. */
export function useCancellation(): { begin(): AbortSignal; cancel(): void } {
  const controller = useRef(new AbortController());
  const cancel = () => controller.current.abort();
  useEffect(() => () => controller.current.abort(), []);
  return {
    begin() {
      controller.current = new AbortController();
      return controller.current.signal;
    },
    cancel,
  };
}
