import type { FieldErrors } from '../errors.js';
import { isMailto, parseMailto } from '../lib/mail-addresses.js';
import { list } from '../schema/fields/list.js';
import { flag, integer } from '../schema/fields/number.js';
import { reference } from '../schema/fields/reference.js';
import { choice, text, textMatching } from '../schema/fields/text.js';
import { type FieldType, internal, optional, required, type Values, withDefault } from '../schema/fields.js';
import {
  buildMessages,
  defaultToStored,
  defineResource,
  description,
  uniqueName,
  usualChanges,
} from '../schema/resource.js';
import { asset } from './asset.js';
import { type AncestorField, ancestorFields, isSelected, type StoredEvent, typeSelector } from './event.js';
import { group } from './group.js';
import { project } from './project.js';
import { savedFilter } from './saved-filter.js';
import { service } from './service.js';

const max_selectors = 50;
const anyType = '*';

/** Forms of a delivery: `standard` for programs, the others for people. */
export const formats = ['standard', 'text', 'slack', 'teams', 'discord', 'ntfy'] as const;
export type MessageFormat = (typeof formats)[number];

const max_addresses = 10;
const max_http_length = 1000;
const default_digest_s = 60;

/** The address that events are sent to. It is shown in lists, so it must not hold a password. */
function receiverUrl(): FieldType {
  const hint = `an http or https address without user and fragment, or mailto: and 1 to ${max_addresses} addresses`;
  return textMatching(3000, isReceiverUrl, hint);
}

function isReceiverUrl(value: string): boolean {
  if (isMailto(value)) return parseMailto(value, max_addresses) !== undefined;
  // a URL parser takes http:host and http:/host for http://host
  if (!/^https?:\/\/[^\s#/]/i.test(value) || /[\s#]/.test(value)) return false;
  if (value.length > max_http_length || !URL.canParse(value)) return false;
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
const ancestorFilter = (resource: typeof project) =>
  reference(resource, `Only events of objects below this ${resource.name}.`);

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
    name: uniqueName,
    url: required(receiverUrl(), { about: 'Events are sent to this address, or by mail to these.' }),
    format: optional(choice(...formats), {
      about: '`standard` is JSON with a signature, the others are texts for people; default: `text` for `mailto:`.',
      example: 'standard',
    }),
    digest_s: optional(integer({ min: 0, max: 3600 }), {
      about:
        'Seconds after a message for which events are collected into the next; default: 60, `standard` takes 0 only.',
      example: 0,
      unit: 'seconds',
    }),
    types: required(list(webhookSelector(), { min: 1, max: max_selectors }), {
      about: 'Types of the events to send, or beginnings of types up to a dot. `["*"]` selects all.',
    }),
    id_project: ancestorFilter(project),
    id_service: ancestorFilter(service),
    id_group: ancestorFilter(group),
    id_asset: ancestorFilter(asset),
    filter: reference(savedFilter, 'Only events of devices, and only of those that this saved filter selects.', {
      protects: true,
    }),
    description,
    enabled: withDefault(flag(), true, { filter: true, about: 'A disabled webhook is sent nothing.' }),
  },
  hidden: {
    /** The signing secrets (reference/webhooks.md#secrets). */
    secret: optional(internal('binary')),
    key_id: optional(text(16)),
    /** Identifies the time from one enabling to the next. */
    run: required(text(36)),
    /** The last event before the run. */
    log_from: required(text(18)),
    /** One of `max_slots` places in the account. */
    slot: required(integer()),
  },
  unique: [['account', 'slot']],
  events: { ...usualChanges, more: ['disabled'] },
  readModifyWrite: ['enabled', 'url', 'format', 'digest_s'],
  /** A webhook that becomes enabled begins a new run at the end of the log; one that becomes `standard` gets the secret. */
  toStored(values, { creating, stored }) {
    const { run, log_from, secret, key_id, ...settings } = values;
    const begins = creating === true || (values.enabled === true && stored?.enabled === false);
    const form = creating || stored !== undefined ? completeForm(values, stored) : {};
    const { set, unset, faults } = defaultToStored({ ...settings, ...form });
    if (begins) Object.assign(set, { run, log_from });
    const isSigned = (form.format ?? 'standard') === 'standard';
    if (!isSigned) return { set, unset: [...unset, 'secret', 'key_id'], faults: findFormFaults({ ...stored, ...set }) };
    if (secret !== undefined && !(values.format !== undefined && stored?.format === 'standard'))
      Object.assign(set, { secret, key_id });
    return { set, unset, faults: { ...faults, ...findFormFaults({ ...stored, ...set }) } };
  },
});

/** Completes `format` and `digest_s`, whose defaults depend on the address, and on the format. */
function completeForm({ url, format, digest_s }: Values, stored: Values = {}): Values {
  const usual = isMailto(String(url ?? stored.url)) ? 'text' : 'standard';
  const chosen = format === undefined ? (stored.format ?? usual) : (format ?? usual);
  const isSameKind = (stored.format === 'standard') === (chosen === 'standard');
  const former = digest_s === undefined && isSameKind ? stored.digest_s : undefined;
  return { format: chosen, digest_s: digest_s ?? former ?? (chosen === 'standard' ? 0 : default_digest_s) };
}

/** Compares the address, format and pause of a webhook with each other. */
function findFormFaults({ url, format, digest_s }: Values): FieldErrors {
  if (isMailto(String(url)) && format !== 'text') return { format: 'must be text with a mailto: address' };
  if (format === 'standard' && digest_s !== 0) return { digest_s: 'must be 0 with format standard' };
  return {};
}

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
