import { useState } from 'react';
import { normalizePath } from '../lib/paths.js';
import { Button } from '../ui/button.js';
import { Select } from '../ui/choice.js';
import { type DeclaredPath, useDeclaredPaths } from './declared-paths.js';
import {
  type Comparison,
  comparisons,
  emptyPathFilter,
  max_paths,
  type PathFilter,
  readPathFilters,
  writePathFilters,
} from './path-filters.js';

interface PathRowsProps {
  /** Parameters that name paths. */
  active: Readonly<Record<string, string>>;
  onChange(active: Record<string, string>): void;
}

const textOf = (parameters: Readonly<Record<string, string>>) => JSON.stringify(Object.entries(parameters).sort());

/** Filters on values and properties, built over the paths that models declare. */
export function PathRows({ active, onChange }: PathRowsProps) {
  const declared = useDeclaredPaths();
  // what is not filled in yet is in no parameter
  const [draft, setDraft] = useState<readonly PathFilter[]>([]);
  const rows = textOf(writePathFilters(draft)) === textOf(active) ? draft : readPathFilters(active);
  function change(changed: readonly PathFilter[]): void {
    setDraft(changed);
    onChange(writePathFilters(changed));
  }
  const used = new Set(rows.map(({ path }) => path));
  return (
    <fieldset className="path-rows">
      <legend>Values and properties</legend>
      {rows.map((row, index) => (
        <PathRow
          // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other identity, and keep nothing of their own
          key={index}
          number={index + 1}
          row={row}
          declared={declared}
          isFree={(path) => path === row.path || !used.has(path)}
          onChange={(changed) => change(rows.with(index, changed))}
          onRemove={() => change(rows.toSpliced(index, 1))}
        />
      ))}
      <div>
        <Button
          label="Add value or property"
          disabled={rows.length >= max_paths}
          onClick={() => setDraft([...rows, emptyPathFilter])}
        />
      </div>
    </fieldset>
  );
}

interface PathRowProps {
  number: number;
  row: PathFilter;
  declared: ReturnType<typeof useDeclaredPaths>;
  isFree(path: string): boolean;
  onChange(row: PathFilter): void;
  onRemove(): void;
}

function PathRow({ number, row, declared, isFree, onChange, onRemove }: PathRowProps) {
  const all = [...declared.measures, ...declared.properties];
  const chosen = all.find(({ path }) => normalizeMember(path) === normalizeMember(row.path)) ?? {
    path: row.path,
    label: row.path,
  };
  const isNumber = chosen.type === undefined || chosen.type === 'number';
  const offered: readonly Comparison[] = isNumber ? ['is', 'from', 'to', 'range'] : ['is'];
  const choose = (path: string) => {
    const type = all.find((other) => other.path === path)?.type;
    const comparison = type === 'text' || type === 'boolean' ? 'is' : row.comparison;
    onChange({ ...row, path, comparison, value: '', upper: '' });
  };
  const groups = [
    ['Last values', declared.measures],
    ['Properties', declared.properties],
  ] as const;
  return (
    <div className="row">
      <select aria-label={`Path ${number}`} value={chosen.path} onChange={({ target }) => choose(target.value)}>
        {row.path === '' && <option value="">Choose…</option>}
        {row.path !== '' && !all.includes(chosen) && <option value={row.path}>{row.path}</option>}
        {groups.map(([label, paths]) => (
          <optgroup key={label} label={label}>
            {paths
              .filter(({ path }) => isFree(path))
              .map((declaredPath) => (
                <option key={declaredPath.path} value={declaredPath.path}>
                  {declaredPath.label}
                </option>
              ))}
          </optgroup>
        ))}
      </select>
      <Select
        aria-label={`Comparison ${number}`}
        value={row.comparison}
        options={offered.map((comparison) => [comparison, comparisons[comparison]])}
        onChange={(comparison) => onChange({ ...row, comparison: comparison as Comparison })}
      />
      <Operand
        label={`Value ${number}`}
        of={chosen}
        value={row.value}
        onChange={(value) => onChange({ ...row, value })}
      />
      {row.comparison === 'range' && (
        <>
          …
          <Operand
            label={`Upper value ${number}`}
            of={chosen}
            value={row.upper}
            onChange={(upper) => onChange({ ...row, upper })}
          />
        </>
      )}
      {chosen.unit}
      <Button label="Remove" of={`condition ${number}`} onClick={onRemove} />
    </div>
  );
}

/** `latest.a.b` and `latest./a/b` are the same. */
function normalizeMember(path: string): string {
  const dot = path.indexOf('.');
  return path.slice(0, dot + 1) + normalizePath(path.slice(dot + 1));
}

const yesOrNo = [
  ['', '–'],
  ['true', 'yes'],
  ['false', 'no'],
] as const;

interface OperandProps {
  label: string;
  of: DeclaredPath;
  value: string;
  onChange(value: string): void;
}

function Operand({ label, of: { type }, value, onChange }: OperandProps) {
  const shared = { 'aria-label': label, value };
  if (type === 'boolean') return <Select {...shared} options={yesOrNo} onChange={onChange} />;
  return (
    <input
      {...shared}
      autoComplete="off"
      inputMode={type === 'number' ? 'decimal' : undefined}
      size={12}
      onChange={({ target }) => onChange(type === 'number' ? target.value.replace(',', '.') : target.value)}
    />
  );
}
