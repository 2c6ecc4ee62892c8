import { list } from '../schema/fields/list.js';
import { flag, integer } from '../schema/fields/number.js';
import { aboutIdentifier, protectingReference, reference } from '../schema/fields/reference.js';
import { name, text, textMatching } from '../schema/fields/text.js';
import { type Field, type FieldType, required, withDefault } from '../schema/fields.js';
import { buildMessages, defineResource, description, usualChanges } from '../schema/resource.js';
import { asset } from './asset.js';
import { type AncestorField, ancestorFields, isSelected, type StoredEvent, typeSelector } from './event.js';
import { group } from './group.js';
import { project } from './project.js';
import { savedFilter } from './saved-filter.js';
import { service } from './service.js';

const max_selectors = 50;
const anyType = '*';

/** The address that events are sent to. It is shown in lists, so it must not hold a password. */
function receiverUrl(): FieldType {
  return textMatching(1000, isReceiverUrl, 'an http or https address without user and fragment');
}

function isReceiverUrl(value: string): boolean {
  // a URL parser takes http:host and http:/host for http://host
  if (!/^https?:\/\/[^\s#/]/i.test(value) || /[\s#]/.test(value) || !URL.canParse(value)) return false;
  const { username, password } = new URL(value);
  return username + password === '';
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
  return { ...field, type: aboutIdentifier(field.type, about) };
}

/** A filter by the device that the event is about. */
function deviceFilter(): Field {
  const about = 'Only events of devices, and only of those that this saved filter selects.';
  return protectingReference(savedFilter, about);
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
    filter: deviceFilter(),
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
    /** One of `max_slots` places in the account. */
    slot: required(integer()),
  },
  unique: [['account', 'slot']],
  events: { ...usualChanges, more: ['disabled'] },
  readModifyWrite: ['enabled'],
  /** A webhook that becomes enabled begins a new run at the end of the log. */
  toStored(values, { creating, stored }) {
    const { run, log_from, ...settings } = values;
    const begins = creating === true || (values.enabled === true && stored?.enabled === false);
    const set: typeof values = begins ? { run, log_from } : {};
    const unset: string[] = [];
    for (const [key, value] of Object.entries(settings)) {
      if (value === null) unset.push(key);
      else set[key] = value;
    }
    return { set, unset, faults: {} };
  },
});

/** The part of a webhook that selects events. */
export interface EventSelection extends Partial<Record<AncestorField, string>> {
  types: readonly string[];
  /** A saved filter, which `filterByDevices` applies. */
  filter?: string;
}

/** Reports whether a webhook is sent an event (reference/webhooks.md#selection). */
export function isEventSelected(selection: EventSelection, event: Pick<StoredEvent, 'type' | AncestorField>): boolean {
  const { types } = selection;
  if (!types.some((selector) => selector === anyType || isSelected(event.type, selector))) return false;
  return ancestorFields.every((key) => selection[key] === undefined || selection[key] === event[key]);
}
