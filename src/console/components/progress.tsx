import { useId, useSyncExternalStore } from 'react';
import { listenToDownloads, readDownloads } from '../download.js';
import { formatBytes } from '../format.js';

interface ProgressProps {
  label: string;
  /** Absent if the total is unknown. */
  value?: number;
  max?: number;
  onCancel?(): void;
}

/** Progress of a long operation, with a button that cancels it. */
export function Progress({ label, value, max, onCancel }: ProgressProps) {
  const id = useId();
  return (
    <div className="progress">
      <label htmlFor={id}>{label}</label>
      <progress id={id} {...(max !== undefined && { max, value: value ?? 0 })} />
      {onCancel && (
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      )}
    </div>
  );
}

/** The downloads in progress, whatever view is shown. */
export function Downloads() {
  const downloads = useSyncExternalStore(listenToDownloads, readDownloads);
  if (downloads.length === 0) return null;
  return (
    <section className="downloads" aria-label="Downloads">
      {downloads.map(({ id, name, received_bytes, cancel }) => (
        <Progress key={id} label={`${name}: ${formatBytes(received_bytes)}`} onCancel={cancel} />
      ))}
    </section>
  );
}
