import { type ComponentProps, useState } from 'react';
import { SchemaField } from '../forms/fields.js';
import { fieldsOf, SchemaForm, type Values } from '../forms/form.js';
import { TextPreview } from './text-preview.js';

interface Place {
  label: string;
  format: string;
  /** Help for finding its address. */
  hint: string;
}

const mail: Place = { label: 'Mail', format: 'text', hint: 'mailto: and 1 to 10 addresses, separated by commas' };
const places: readonly Place[] = [
  { label: 'A program', format: 'standard', hint: 'https://… of a receiver that verifies the signature' },
  mail,
  { label: 'Slack', format: 'slack', hint: 'https://hooks.slack.com/services/… of an incoming webhook' },
  { label: 'Teams', format: 'teams', hint: 'Address of a workflow that starts when a webhook request is received' },
  { label: 'Discord', format: 'discord', hint: 'https://discord.com/api/webhooks/… of a channel' },
  { label: 'ntfy', format: 'ntfy', hint: 'https://ntfy.sh/TOPIC with a topic that nobody guesses' },
  { label: 'A program, as text', format: 'text', hint: 'https://… of a receiver that takes plain text' },
];

interface Subject {
  label: string;
  types: readonly string[];
}

const subjects: readonly Subject[] = [
  { label: 'Alarms', types: ['alarm.'] },
  { label: 'Status of devices', types: ['device.status_changed'] },
  { label: 'Everything', types: ['*'] },
];
const own: Subject = { label: 'Other types of events', types: [] };

function findPlace({ format, url = 'mailto:' }: Values): Place | undefined {
  const isMail = String(url).startsWith('mailto:');
  return places.find((place) => place.format === format && (format !== 'text' || (place === mail) === isMail));
}

type Props = Omit<ComponentProps<typeof SchemaForm>, 'children' | 'fields'>;

/** The form of a webhook: where to, what, and then which part of the fleet; with a preview of its texts. */
export function WebhookForm({ schema, initial = {}, mutation, callOf, ...props }: Props) {
  const [place, setPlace] = useState(() => findPlace(initial) ?? places[0]);
  const [subject, setSubject] = useState(
    () => subjects.find(({ types }) => String(types) === String(initial.types ?? 'alarm.')) ?? own,
  );
  const isForPrograms = place?.format === 'standard';
  const hidden = ['format', ...(subject === own ? [] : ['types']), ...(isForPrograms ? ['digest_s'] : [])];
  const complete = (values: Values): Values => ({
    ...values,
    format: place?.format,
    ...(subject !== own && { types: subject.types }),
  });
  return (
    <div className="stack">
      <div className="form">
        <SchemaField
          name="Where to"
          schema={{ enum: places.map(({ label }) => label) }}
          value={place?.label}
          onChange={(label) => setPlace((old) => places.find((other) => other.label === label) ?? old)}
        />
        {place && <p className="muted">{place.hint}</p>}
        <SchemaField
          name="What"
          schema={{ enum: [...subjects, own].map(({ label }) => label) }}
          value={subject.label}
          onChange={(label) => setSubject(subjects.find((other) => other.label === label) ?? own)}
        />
      </div>
      <SchemaForm
        {...props}
        schema={schema}
        initial={initial}
        fields={fieldsOf(schema).filter((name) => !hidden.includes(name))}
        mutation={{ ...mutation, mutate: (values) => mutation.mutate(complete(values)) }}
        {...(callOf && { callOf: (values: Values) => callOf(complete(values)) })}
      >
        {(values) => (isForPrograms ? null : <TextPreview webhook={complete(values)} />)}
      </SchemaForm>
    </div>
  );
}
