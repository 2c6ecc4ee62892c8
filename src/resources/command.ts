import { freeform } from '../schema/fields/freeform.js';
import { integer, recordedTime } from '../schema/fields/number.js';
import { choice, max_identifier_length, text } from '../schema/fields/text.js';
import { computed, type FieldType, optional, required, withDefault } from '../schema/fields.js';
import { auditFields, defineListed } from '../schema/resource.js';

/** States of a command (reference/commands.md#life-cycle). */
export const commandStatuses = ['queued', 'sent', 'done', 'failed', 'expired', 'cancelled'] as const;
export type CommandStatus = (typeof commandStatuses)[number];

/** The states that each state is entered from: no transition goes back. */
export const commandOrigins = {
  sent: ['queued'],
  done: ['queued', 'sent'],
  failed: ['queued', 'sent'],
  expired: ['queued', 'sent'],
  cancelled: ['queued', 'sent'],
} as const satisfies Partial<Record<CommandStatus, readonly CommandStatus[]>>;

/** A state that a command enters after its creation. */
export type LaterStatus = keyof typeof commandOrigins;

const default_expiry_s = 86_400;
const max_expiry_s = 30 * 86_400;

/** Seconds from now on; the command has the time instead. */
const expiry: FieldType = { ...computed(integer({ min: 1, max: max_expiry_s })), responseSchema: 'never' };
const { query: _unsorted, ...unsortedExpiry } = expiry;
const payload = freeform({ levels: 16 });

/** The id of a command, as examples show it. */
export const commandId = '01a201a7-a8d1-798a-9484-a211201349d0';

/** A command to a device (reference/commands.md). */
export const command = defineListed({
  name: 'command',
  plural: 'commands',
  title: 'Command',
  example: { name: 'restart', data: { delay: 5 }, expires_in: 3600 },
  fields: {
    name: required(text(100), { filter: true, about: 'What the device is to do.' }),
    data: optional(payload, { about: 'Parameters, at most 32 KiB as compact JSON.' }),
    expires_in: withDefault(unsortedExpiry, default_expiry_s, {
      about: 'Seconds until the command expires.',
      unit: 'seconds',
    }),
  },
  readOnly: {
    id: required(text(36), { about: 'Identifies the command.', example: commandId }),
    status: required(choice(...commandStatuses), { filter: true, about: 'State of the command.', example: 'queued' }),
    device: required(text(max_identifier_length), { about: 'Identifier of the device.', example: 'Pump@demo' }),
    expires_at: required(recordedTime(), { about: 'When it expires.' }),
    sent_at: optional(recordedTime(), { about: 'When the device had it; absent before.' }),
    finished_at: optional(recordedTime(), { about: 'When it was done, failed, expired or cancelled; absent before.' }),
    result: optional(payload, { about: '`data` of the answer of the device.', example: { uptime: 3 } }),
    ...auditFields,
  },
  hidden: {
    /** One of 100 places of the device, while the command is open. */
    slot: optional(integer()),
  },
  parentCollections: { device: 'devices' },
  parentField: 'device',
  defaultSort: 'created_at',
  events: {
    insert: 'created',
    shown: ['id', 'name'],
    named: Object.keys(commandOrigins).map((status) => `command.${status}`),
    unlogged: ['result'],
  },
});
