import { useId, useState } from 'react';
import type { Schema } from '../api/document.js';
import { useList, useModels, useSession } from '../api/hooks.js';
import { type Measure, scopeFields, statuses, statusLabels } from '../api/resources.js';
import { findMeasuredPaths } from '../charts/measured-paths.js';
import { SchemaField } from '../forms/fields.js';
import type { Values } from '../forms/form.js';
import { ScalarInput } from '../forms/inputs.js';
import type { Condition } from '../lib/conditions.js';
import { labelOf } from '../lib/format.js';
import { findScalars, normalizePath } from '../lib/paths.js';
import { Button } from '../ui/button.js';
import { CheckBoxes, Select } from '../ui/choice.js';

/** The fields of a rule that the sentence has. */
export const sentenceFields: readonly string[] = ['conditions', 'match', 'for', ...scopeFields];

/** The kinds of a condition, by the words that they begin with. */
const kinds = { value: 'the value of', status: 'the status is', absent: 'nothing comes with' };
const beginnings: Readonly<Record<string, Condition>> = {
  value: { op: '>' },
  status: { status: [] },
  absent: { absent: '', minutes: 60 },
};
const operators = Object.entries({
  '>': 'is above',
  '>=': 'is at least',
  '<': 'is below',
  '<=': 'is at most',
  '=': 'is',
  '!=': 'is not',
});
const matches = Object.entries({ all: 'all of these hold', any: 'any of these holds' });
const lateStatuses = statuses.slice(1).map((status) => [status, statusLabels[status]] as const);

interface SentenceProps {
  rule: Values;
  schema: Schema;
  errors: Readonly<Record<string, string>>;
  onChange(changed: Values): void;
}

/** A rule as sentences: the values or statuses that it waits for, for how long, and of which devices. */
export function RuleSentence({ rule, schema, errors, onChange }: SentenceProps) {
  const paths = useKnownPaths();
  const id = useId();
  // inputs keep what is typed: after a removal all of them are new
  const [removals, setRemovals] = useState(0);
  const conditions = (rule.conditions ?? [beginnings.value]) as Condition[];
  const change = (changed: readonly Condition[]) => onChange({ conditions: changed });
  return (
    <fieldset className="sentence">
      <legend>Raise an alarm when</legend>
      {conditions.length > 1 && (
        <Select
          aria-label="Match"
          value={String(rule.match ?? 'all')}
          options={matches}
          onChange={(match) => onChange({ match })}
        />
      )}
      {conditions.map((condition, index) => (
        <fieldset key={`${removals} ${String(index)}`} className="row">
          <legend className="hidden">Condition {index + 1}</legend>
          <ConditionInputs
            condition={condition}
            paths={paths}
            onChange={(changed) => change(conditions.with(index, changed))}
          />
          {conditions.length > 1 && (
            <Button
              label="Remove"
              of={`condition ${index + 1}`}
              onClick={() => {
                setRemovals(removals + 1);
                change(conditions.toSpliced(index, 1));
              }}
            />
          )}
          <Messages errors={errors} of={`conditions.${index}`} />
        </fieldset>
      ))}
      <Messages errors={{ conditions: errors.conditions ?? '' }} of="conditions" />
      <div>
        <Button label="Add condition" onClick={() => change([...conditions, beginnings.value ?? {}])} />
      </div>
      <div className="row">
        <label htmlFor={id}>for</label>
        <ScalarInput
          shared={{ id }}
          value={typeof rule.for === 'number' ? rule.for / 60 : undefined}
          onChange={(minutes) => onChange({ for: typeof minutes === 'number' ? Math.round(minutes * 60) : minutes })}
        />
        min in
        <Scope {...{ rule, schema, errors, onChange }} />
      </div>
      <Messages errors={errors} of="for" />
    </fieldset>
  );
}

function Messages({ errors, of }: { errors: SentenceProps['errors']; of: string }) {
  const own = Object.entries(errors).filter(([field, text]) => `${field}.`.startsWith(`${of}.`) && text !== '');
  return own.map(([field, text]) => (
    <p key={field} className="message">
      {`${field.slice(of.length + 1)} ${text}`.trim()}
    </p>
  ));
}

/** The paths of models, then those that devices have sent last. */
function useKnownPaths(): readonly Measure[] {
  const models = useModels({ enabled: useSession().can('GET', '/models/') }).data?.result ?? [];
  const query = { fields: 'latest', max: 100 };
  const devices = useList<{ latest?: { data: unknown } }>('/devices/', query).data?.result ?? [];
  const sent: Measure[] = devices.flatMap(({ latest }) => findScalars(latest?.data).map(({ path }) => ({ path })));
  const paths = new Map<string, Measure>();
  for (const measure of [...findMeasuredPaths(models), ...sent]) {
    const key = normalizePath(measure.path);
    if (!paths.has(key)) paths.set(key, measure);
  }
  return [...paths.values()];
}

interface ConditionProps {
  condition: Condition;
  paths: readonly Measure[];
  onChange(condition: Condition): void;
}

function ConditionInputs({ condition, paths, onChange }: ConditionProps) {
  const { path = '', op, value, clear, status, absent, minutes } = condition;
  const kind = Array.isArray(status) ? 'status' : absent === undefined ? 'value' : 'absent';
  const set = (changed: Condition) => onChange({ ...condition, ...changed });
  const { unit } = paths.find((known) => normalizePath(known.path) === normalizePath(String(path))) ?? {};
  const number = (name: string, content: unknown, field: string) => (
    <ScalarInput shared={{ 'aria-label': name }} value={content} onChange={(changed) => set({ [field]: changed })} />
  );
  return (
    <>
      <Select
        aria-label="Kind"
        value={kind}
        options={Object.entries(kinds)}
        onChange={(next) => onChange(beginnings[next] ?? {})}
      />
      {kind === 'status' && (
        <CheckBoxes options={lateStatuses} chosen={status as string[]} onChange={(chosen) => set({ status: chosen })} />
      )}
      {kind === 'value' && (
        <>
          <PathChoice paths={paths} value={String(path)} onChange={(chosen) => set({ path: chosen })} />
          <Select
            aria-label="Comparison"
            value={String(op)}
            options={operators}
            onChange={(chosen) => set({ op: chosen })}
          />
          {number('Value', value, 'value')} {unit}
          {/^[<>]/.test(String(op)) && <>until {number('Until', clear, 'clear')}</>}
        </>
      )}
      {kind === 'absent' && (
        <>
          <PathChoice paths={paths} value={String(absent)} onChange={(chosen) => set({ absent: chosen })} />
          for {number('Minutes', minutes, 'minutes')} min
        </>
      )}
    </>
  );
}

const other = 'another…';

interface PathChoiceProps {
  paths: readonly Measure[];
  value: string;
  onChange(path: string): void;
}

/** A path by its name, or any other one as text. */
function PathChoice({ paths, value, onChange }: PathChoiceProps) {
  // what is typed stays text, also while it is the beginning of another path
  const [isTyped, setTyped] = useState(false);
  const isKnown = value === '' || paths.some(({ path }) => path === value);
  function type(path: string): void {
    setTyped(true);
    onChange(path);
  }
  if (isTyped || !isKnown || paths.length === 0)
    return <input aria-label="Path" autoComplete="off" value={value} onChange={({ target }) => type(target.value)} />;
  return (
    <Select
      aria-label="Path"
      value={value}
      options={[...paths.map(({ path, name = path }) => [path, name] as const), [other, other]]}
      empty="choose…"
      onChange={(path) => (path === other ? type('') : onChange(path))}
    />
  );
}

/** All devices, or a part of them. */
function Scope({ rule, schema, errors, onChange }: SentenceProps) {
  const [field, setField] = useState(scopeFields.find((name) => rule[name] !== undefined) ?? '');
  return (
    <>
      <Select
        aria-label="Where"
        value={field}
        options={scopeFields.map((name) => [name, `the ${labelOf(name).toLowerCase()}`])}
        empty="all devices"
        onChange={(chosen) => {
          setField(chosen);
          onChange(Object.fromEntries(scopeFields.map((name) => [name, undefined])));
        }}
      />
      {field !== '' && (
        <SchemaField
          name={field}
          schema={schema.properties?.[field] ?? {}}
          value={rule[field]}
          error={errors[field]}
          onChange={(id) => onChange({ [field]: id })}
        />
      )}
    </>
  );
}
