import { type ComponentProps, useState } from 'react';
import { pathOf } from '../api/client.js';
import { useGet, useList, useSession } from '../api/hooks.js';
import type { EventText } from '../api/interface.js';
import { type Entry, parentFields } from '../api/resources.js';
import { SchemaField } from '../forms/fields.js';
import { fieldsOf, SchemaForm, type Values } from '../forms/form.js';
import { ObjectLink } from '../ui/address.js';
import { CheckBoxes } from '../ui/choice.js';
import { Failure, Loaded } from '../ui/page.js';

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

/** Types of events that people choose from; one that ends with a point stands for all that begin so. */
const subjects = Object.entries({
  '*': 'Everything',
  'alarm.': 'Alarms',
  'device.status_changed': 'Status of devices',
  'device.created': 'New devices',
  'device.updated': 'Changed devices',
  'device.deleted': 'Deleted devices',
  'state.': 'State',
  'command.': 'Commands',
  'config.': 'Delivery of files',
  'deviceconfig.': 'Stored files',
  'streams.': 'Deleted streams',
  'apikey.': 'API keys',
  'credentials.': 'MQTT credentials',
  'webhook.': 'Webhooks',
});

function findPlace({ format, url = 'mailto:' }: Values): Place | undefined {
  const isMail = String(url).startsWith('mailto:');
  return places.find((place) => place.format === format && (format !== 'text' || (place === mail) === isMail));
}

type Props = Omit<ComponentProps<typeof SchemaForm>, 'children' | 'fields'>;

/** The form of a webhook: where to, what, and then which part of the fleet; with a preview of its texts. */
export function WebhookForm({ schema, initial = {}, mutation, callOf, ...props }: Props) {
  const [place, setPlace] = useState(() => findPlace(initial) ?? places[0]);
  const [types, setTypes] = useState((initial.types ?? ['alarm.']) as readonly string[]);
  const isOffered = (type: string) => subjects.some(([offered]) => offered === type);
  const others = types.filter((type) => !isOffered(type));
  const isForPrograms = place?.format === 'standard';
  const hidden = ['format', 'types', ...(isForPrograms ? ['digest_s'] : [])];
  const complete = (values: Values): Values => ({
    ...values,
    format: place?.format,
    types: types.filter((type) => type !== ''),
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
        <fieldset>
          <legend>What</legend>
          <div className="row choices">
            <CheckBoxes
              options={subjects}
              chosen={types.filter(isOffered)}
              onChange={(chosen) => setTypes([...chosen, ...others])}
            />
          </div>
          <SchemaField
            name="Other types of events"
            schema={{ type: 'array' }}
            value={others}
            onChange={(typed) => setTypes([...types.filter(isOffered), ...((typed ?? []) as string[])])}
          />
        </fieldset>
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

const text_template = '/events/{event}/text/';

/** The text that a webhook would send of the last event of its types and place. */
export function TextPreview({ webhook }: { webhook: Values }) {
  const { can } = useSession();
  const [type] = (webhook.types ?? []) as readonly string[];
  const scope = Object.fromEntries(parentFields.flatMap((key) => (webhook[key] ? [[key, String(webhook[key])]] : [])));
  const query = { max: 1, fields: 'id', ...scope, ...(type !== '*' && { type }) };
  const isOffered = can('GET', text_template) && can('GET', '/events/');
  const last = useList<{ id: string }>('/events/', query, { enabled: isOffered && Boolean(type) });
  const id = last.data?.result[0]?.id;
  if (!isOffered) return null;
  return (
    <fieldset>
      <legend>Preview</legend>
      <Failure error={last.error} />
      {last.data?.result.length === 0 && <p className="help">There has been no such event yet.</p>}
      {id !== undefined && <EventMessage id={id} />}
    </fieldset>
  );
}

/** An event of the log as people get it. */
function EventMessage({ id }: { id: string }) {
  const answer = useGet<EventText>(pathOf('events', id, 'text'), {}, { isStatic: true });
  return <Loaded of={answer}>{({ subject, text }) => <pre>{`${subject}\n\n${text}`}</pre>}</Loaded>;
}

/** An event that was sent: its device, its text, and itself. */
export function DeliveredEvent({ id }: { id: string }) {
  // ids are hexadecimal numbers in the order of the log, which shows no single events
  const query = { after: (BigInt(`0x${id}`) - 1n).toString(16).padStart(id.length, '0'), max: 1 };
  const event = useList<Entry>('/events/', query, { isStatic: true }).data?.result.find((found) => found.id === id);
  return (
    <div className="stack">
      {event?.resource === 'device' && <ObjectLink plural="devices" id={String(event.id_developer)} />}
      <EventMessage id={id} />
      {event && <pre className="json">{JSON.stringify(event, undefined, 2)}</pre>}
    </div>
  );
}
