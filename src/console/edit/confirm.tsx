import { type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { findTypeByName } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { Form, FormActions } from '../ui/button.js';
import { Facts, Failure } from '../ui/page.js';

interface ConfirmFormProps {
  /** The text to type: a name, or a number. */
  text: string;
  submitLabel: string;
  isDangerous?: boolean;
  /** Runs once it is confirmed. */
  mutation: { error: unknown; isPending: boolean };
  onConfirm(): void;
  onCancel(): void;
  children: ReactNode;
}

/** A form that is complete once the name or the number of what it changes has been typed. */
export function ConfirmForm({ text, submitLabel, onConfirm, onCancel, children, ...rest }: ConfirmFormProps) {
  const { isDangerous, mutation } = rest;
  const { error, isPending } = mutation;
  const isNumber = /^\d+$/.test(text);
  const [typed, setTyped] = useState('');
  const input = useId();
  const field = useRef<HTMLInputElement>(null);
  // the button that has led here is gone, and the focus with it
  useEffect(() => field.current?.focus(), []);
  return (
    <Form className="form" onSubmit={() => typed === text && onConfirm()}>
      {children}
      <Failure error={error} />
      <div className="field">
        <label htmlFor={input}>Type {isNumber ? `the number (${text})` : 'the name'} to confirm</label>
        <input
          ref={field}
          id={input}
          inputMode={isNumber ? 'numeric' : 'text'}
          autoComplete="off"
          value={typed}
          onChange={({ target }) => setTyped(target.value)}
        />
      </div>
      <FormActions
        label={submitLabel}
        kind={isDangerous ? 'danger' : 'primary'}
        disabled={typed !== text || isPending}
        onCancel={onCancel}
        cancelLabel={isPending ? 'Close' : 'Cancel'}
      />
    </Form>
  );
}

const otherTitles: Readonly<Record<string, string>> = {
  deviceconfig: 'Configuration files',
  stream: 'Streams',
  credentials: 'MQTT credentials',
  topic: 'MQTT topics',
};

/** Numbers of objects that a deletion removes, by their type as the service names it. */
export function DeletedCounts({ counts }: { counts: Readonly<Record<string, unknown>> }) {
  const entries = Object.entries(counts).map(([name, count]): [string, string] => [
    findTypeByName(name)?.title ?? otherTitles[name] ?? name,
    formatNumber(Number(count)),
  ]);
  return <Facts label="What is deleted" entries={entries} />;
}
