import { freeform } from '../schema/fields/freeform.js';
import { list } from '../schema/fields/list.js';
import { integer, timestamp } from '../schema/fields/number.js';
import { max_identifier_length, text, textMatching } from '../schema/fields/text.js';
import { type FieldType, optional, required } from '../schema/fields.js';
import { defineListed, defineStored } from '../schema/resource.js';
import { eventIdPattern } from './event.js';

const parentCollections = { webhook: 'webhooks' };
const webhookId = required(text(max_identifier_length));

/** The id of an event, as a field. */
export function eventId(): FieldType {
  return textMatching(18, (value) => eventIdPattern.test(value), 'the id of an event', {
    pattern: eventIdPattern.source,
  });
}

/** An attempt to send an event (reference/webhooks.md#deliveries). The last 1,000 of each webhook are kept. */
export const delivery = defineListed({
  parentCollections,
  parentField: 'webhook',
  name: 'delivery',
  plural: 'webhook_deliveries',
  fields: {},
  readOnly: {
    event: required(eventId(), { about: 'The event that was sent.', example: '69214e6f0000000100' }),
    type: required(text(50), { about: 'Type of the event.', example: 'device.status_changed' }),
    at: required(timestamp(), { about: 'Beginning of the attempt, with milliseconds.' }),
    count: optional(integer({ min: 2 }), {
      about: 'Number of the events, if it is a digest; `event` is the first.',
      example: 5,
    }),
    attempt: required(integer({ min: 1 }), { about: 'Number of the attempt to send this event.', example: 1 }),
    status: optional(integer({ min: 100, max: 999 }), { about: 'HTTP status of the answer.', example: 200 }),
    error: optional(text(200), {
      about: 'Cause of the failure, or addresses that a mail server refused; absent after success.',
      example: 'did not answer in time',
    }),
    took_ms: required(integer({ min: 0 }), {
      about: 'Milliseconds from the beginning to the end.',
      example: 31,
      unit: 'milliseconds',
    }),
    next_at: optional(timestamp(), { about: 'When the event is sent again.' }),
  },
  hidden: {
    webhook: webhookId,
    seq: required(integer()),
    slot: required(integer()),
    /** The text of a digest. */
    message: optional(freeform({ levels: 2 })),
  },
  unique: [['parent', 'slot']],
  defaultSort: 'seq',
});

/** An event that is sent again later. */
export const webhookretry = defineStored({
  parentCollections,
  name: 'webhookretry',
  plural: 'webhook_retries',
  hidden: {
    webhook: webhookId,
    run: required(text(36)),
    event: required(eventId()),
    attempts: required(integer()),
    next_at: required(timestamp()),
    /** Text and number of several events. */
    digest: optional(freeform({ levels: 3 })),
    /** The addresses of a mail that are left. */
    addresses: optional(list(text(254), { max: 10 })),
  },
  unique: [['run', 'event']],
  indexes: [['account', 'webhook', 'next_at', '_id'], ['run', 'next_at'], ['event']],
});

/** Progress of the delivery to a webhook. */
export const webhookstate = defineStored({
  parentCollections,
  name: 'webhookstate',
  plural: 'webhook_states',
  hidden: {
    webhook: webhookId,
    run: optional(text(36)),
    /** The last event whose first attempt has ended. */
    cursor: optional(text(18)),
    /** Time of the last first attempt, after which a digest is collected. */
    told_at: optional(timestamp()),
    /** Attempts so far. */
    attempts: required(integer()),
    /** Time of the first failure since the last success. */
    failing_since: optional(timestamp()),
  },
  indexes: [['account', 'webhook', '_id']],
});
