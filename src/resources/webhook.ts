import { list } from '../schema/fields/list.js';
import { flag, integer, timestamp } from '../schema/fields/number.js';
import { reference } from '../schema/fields/reference.js';
import { max_identifier_length, name, text, textMatching } from '../schema/fields/text.js';
import { type Field, type FieldType, optional, required, withDefault, withDocumentation } from '../schema/fields.js';
import { buildMessages, defineListed, defineResource, description, usualChanges } from '../schema/resource.js';
import { asset } from './asset.js';
import {
  type AncestorField,
  ancestorFields,
  eventIdPattern,
  isSelected,
  type StoredEvent,
  typeSelector,
} from './event.js';
import { group } from './group.js';
import { project } from './project.js';
import { service } from './service.js';

const max_selectors = 50;
const anyType = '*';

/** The address that events are sent to. It is shown in lists, so it must not hold a password. */
function receiverUrl(): FieldType {
  return textMatching(1000, isReceiverUrl, 'an http or https address without user and fragment');
}

function isReceiverUrl(value: string): boolean {
  if (/[\s#]/.test(value) || !URL.canParse(value)) return false;
  const { protocol, username, password, hostname } = new URL(value);
  return /^https?:$/.test(protocol) && hostname !== '' && username + password === '';
}

/** A type selector of the list of events, or `*` for all types. */
function webhookSelector(): FieldType {
  const selector = typeSelector();
  const pattern = `${selector.schema.pattern}|^\\*$`;
  const hint = 'a type such as device.created, a prefix such as device., or *';
  return {
    ...selector,
    body: (value, path, faults) => (value === anyType ? value : selector.body(value, path, faults)),
    schema: { ...selector.schema, pattern, description: `Must be ${hint}.`, examples: ['device.'] },
  };
}

/** A filter by an object above the subject of the event. */
function ancestorFilter(resource: typeof project): Field {
  const field = reference(resource);
  const about = `Only events of objects below this ${resource.name}.`;
  return { ...field, type: withDocumentation(withoutDescription(field.type), { about }) };
}

function withoutDescription(type: FieldType): FieldType {
  const { description: _replaced, ...schema } = type.schema;
  const { description: _alsoReplaced, ...querySchema } = type.querySchema ?? {};
  return { ...type, schema, querySchema };
}

/** Written by the service only, and never shown. */
const encrypted: FieldType = { ...text(1), stored: 'binary' };

/** An address to which events of the account are sent (reference/webhooks.md#fields). */
export const webhook = defineResource({
  name: 'webhook',
  plural: 'webhooks',
  messages: buildMessages('Webhook'),
  example: {
    name: 'Alarms',
    url: 'https://hooks.example/devices',
    types: ['device.', 'webhook.disabled'],
    description: 'Tells the shift that a device is silent',
    enabled: true,
  },
  fields: {
    name: required(name(), { filter: true, about: 'Unique in the account.' }),
    url: required(receiverUrl(), { about: 'Events are sent to this address.' }),
    types: required(list(webhookSelector(), { min: 1, max: max_selectors }), {
      about: 'Types of the events to send, or beginnings of types up to a dot. `["*"]` selects all.',
    }),
    id_project: ancestorFilter(project),
    id_service: ancestorFilter(service),
    id_group: ancestorFilter(group),
    id_asset: ancestorFilter(asset),
    description,
    enabled: withDefault(flag(), true, { filter: true, about: 'A disabled webhook is sent nothing.' }),
  },
  hidden: {
    /** The signing secrets (reference/webhooks.md#secrets). */
    secret: required(encrypted),
    key_id: required(text(16)),
    /** Identifies the time from one enabling to the next. */
    run: required(text(36)),
    /** The last event before the run. */
    log_from: required(text(18)),
    /** One of `max_webhooks` places in the account. */
    slot: required(integer()),
  },
  unique: [['account', 'slot']],
  events: { ...usualChanges, more: ['disabled'] },
  readModifyWrite: ['enabled'],
  /** A webhook that becomes enabled begins a new run at the end of the log. */
  toStored(values, { creating, stored }) {
    const { run, log_from, ...given } = values;
    const begins = creating === true || (values.enabled === true && stored?.enabled === false);
    const set: typeof values = begins ? { run, log_from } : {};
    const unset: string[] = [];
    for (const [key, value] of Object.entries(given)) {
      if (value === null) unset.push(key);
      else set[key] = value;
    }
    return { set, unset, faults: {} };
  },
});

/** The part of a webhook that selects events. */
export interface EventSelection extends Partial<Record<AncestorField, string>> {
  types: readonly string[];
}

/** Reports whether a webhook is sent an event (reference/webhooks.md#selection). */
export function isEventSelected(selection: EventSelection, event: Pick<StoredEvent, 'type' | AncestorField>): boolean {
  const { types } = selection;
  if (!types.some((selector) => selector === anyType || isSelected(event.type, selector))) return false;
  return ancestorFields.every((key) => selection[key] === undefined || selection[key] === event[key]);
}

const belowWebhook = { parentCollections: { webhook: 'webhooks' }, parentField: 'webhook' } as const;
const webhookId = required(text(max_identifier_length));

/** The id of an event, as a field. */
export function eventId(): FieldType {
  return textMatching(18, (value) => eventIdPattern.test(value), 'the id of an event', {
    pattern: eventIdPattern.source,
  });
}

/** An attempt to send an event (reference/webhooks.md#deliveries). The last 1,000 of each webhook are kept. */
export const delivery = defineListed({
  ...belowWebhook,
  name: 'delivery',
  plural: 'webhook_deliveries',
  fields: {},
  readOnly: {
    event: required(eventId(), { about: 'The event that was sent.', example: '69214e6f0000000100' }),
    type: required(text(50), { about: 'Type of the event.', example: 'device.status_changed' }),
    at: required(timestamp(), { about: 'Beginning of the attempt, with milliseconds.' }),
    attempt: required(integer({ min: 1 }), { about: 'Number of the attempt to send this event.', example: 1 }),
    status: optional(integer({ min: 100, max: 999 }), { about: 'HTTP status of the answer.', example: 200 }),
    error: optional(text(200), {
      about: 'Cause of the failure; absent after success.',
      example: 'did not answer in time',
    }),
    took_ms: required(integer({ min: 0 }), {
      about: 'Milliseconds from the beginning to the end.',
      example: 31,
      unit: 'milliseconds',
    }),
    next_at: optional(timestamp(), { about: 'When the event is sent again.' }),
  },
  hidden: { webhook: webhookId, seq: required(integer()), slot: required(integer()) },
  unique: [['parent', 'slot']],
  defaultSort: 'seq',
});

/** An event that is sent again later. */
export const webhookretry = defineListed({
  ...belowWebhook,
  name: 'webhookretry',
  plural: 'webhook_retries',
  fields: {},
  hidden: {
    webhook: webhookId,
    run: required(text(36)),
    event: required(eventId()),
    attempts: required(integer()),
    next_at: required(timestamp()),
  },
  unique: [['run', 'event']],
  indexes: [['run', 'next_at'], ['event']],
  defaultSort: 'next_at',
});

/** Progress of the delivery to a webhook. */
export const webhookstate = defineListed({
  ...belowWebhook,
  name: 'webhookstate',
  plural: 'webhook_states',
  fields: {},
  hidden: {
    webhook: webhookId,
    run: optional(text(36)),
    /** The last event whose first attempt has ended. */
    cursor: optional(text(18)),
    /** Attempts so far. */
    attempts: required(integer()),
    /** Time of the first failure since the last success. */
    failing_since: optional(timestamp()),
  },
  defaultSort: '_id',
});
