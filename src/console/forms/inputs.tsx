import { useState } from 'react';
import { formatScalar, parseJson, parseScalar } from './scalars.js';

export interface InputProps {
  value: unknown;
  onChange(value: unknown): void;
  shared: { id?: string; 'aria-label'?: string; required?: boolean | undefined };
}

/** Free-form JSON. Text that is no JSON stays text, which the service rejects with a message. */
export function JsonInput({ value, onChange, shared }: InputProps) {
  const [text, setText] = useState(() =>
    value === undefined || value === null ? '' : JSON.stringify(value, undefined, 2),
  );
  return (
    <textarea
      {...shared}
      className="code"
      rows={5}
      spellCheck={false}
      placeholder="{ }"
      value={text}
      onChange={({ target }) => {
        setText(target.value);
        onChange(parseJson(target.value));
      }}
    />
  );
}

/** A number, a boolean or a text. Its text is kept, because `1.` is none of them yet. */
export function ScalarInput({ value, onChange, shared }: InputProps) {
  const [text, setText] = useState(() => formatScalar(value));
  return (
    <input
      {...shared}
      autoComplete="off"
      value={text}
      onChange={({ target }) => {
        setText(target.value);
        onChange(parseScalar(target.value));
      }}
    />
  );
}
