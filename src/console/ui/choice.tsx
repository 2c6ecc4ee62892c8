import type { SelectHTMLAttributes } from 'react';

interface SelectProps extends Omit<SelectHTMLAttributes<HTMLSelectElement>, 'onChange'> {
  /** Values with their texts. */
  options: readonly (readonly [value: string, text: string])[];
  /** Text of the option that stands for none of them. */
  empty?: string;
  onChange(value: string): void;
}

/** A choice of one value. */
export function Select({ options, empty, onChange, ...rest }: SelectProps) {
  return (
    <select {...rest} onChange={({ target }) => onChange(target.value)}>
      {empty && <option value="">{empty}</option>}
      {options.map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  );
}

interface CheckBoxesProps<T> {
  /** Values with their texts. */
  options: readonly (readonly [value: T, text: string | number])[];
  chosen: readonly T[];
  /** No more can be chosen. */
  isFull?: boolean;
  onChange(chosen: T[]): void;
}

/** A choice of several values. */
export function CheckBoxes<T extends string | number>({ options, chosen, isFull, onChange }: CheckBoxesProps<T>) {
  return options.map(([value, text]) => (
    <label key={value}>
      <input
        type="checkbox"
        checked={chosen.includes(value)}
        disabled={isFull && !chosen.includes(value)}
        onChange={({ target }) =>
          onChange(target.checked ? [...chosen, value] : chosen.filter((other) => other !== value))
        }
      />
      {text}
    </label>
  ));
}
