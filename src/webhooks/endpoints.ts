import { randomBytes } from 'node:crypto';
import { AppError, type FieldErrors, throwIfAny } from '../errors.js';
import { findEvent } from '../events/store.js';
import { awaitServer } from '../http/admission.js';
import { createCloseSignal } from '../http/close-signal.js';
import type { Endpoint, RequestContext } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import { type ResourceHooks, resourceEndpoints } from '../http/resource-endpoints.js';
import { isMailto } from '../lib/mail-addresses.js';
import { createShares } from '../lib/shares.js';
import { listChildren } from '../objects/select/lists.js';
import { eventId } from '../resources/delivery.js';
import type { StoredEvent } from '../resources/event.js';
import { delivery, webhook } from '../resources/index.js';
import { isEventSelected } from '../resources/webhook.js';
import { columnsOf } from '../schema/columns.js';
import { text } from '../schema/fields/text.js';
import { computed, type FieldType, optional, type Schema, type Values, withDocumentation } from '../schema/fields.js';
import { fieldsOf, format, max, paging } from '../schema/list-parameters.js';
import { describeClosed } from '../schema/openapi/bodies.js';
import { describeIdentifier, type ListedType } from '../schema/resource.js';
import { type SenderDeps, sendParcel } from './attempt.js';
import { type Attempt, findLastAttempt, type Parcel, recordAttempt, removeRetry } from './deliveries.js';
import { writeBody } from './message.js';
import { createSecret, isStoredSecret, mergeSecret, rotateSecret } from './secrets.js';
import { createWebhook, findWebhook, prepareWebhookUpdate, type StoredWebhook } from './store.js';

/** Leaves one of the 5 s in which a request is answered. */
const receiver_timeout_ms = 4000;
const slot_limit_ms = receiver_timeout_ms + 2000;
/** Bounds the requests that wait for receivers, so that slow ones do not use up the slots of the service. */
const max_concurrent_tests = 64;
/** Requests of one account that wait for such a slot. */
const max_waiting = 200;

const base = '/webhooks/{webhook_id_developer}/';
const ofWebhook = { webhook_id_developer: describeIdentifier(webhook) };
const shared = { tag: 'webhooks', scope: 'admin', pathParameters: ofWebhook } as const;
const idOf = ({ path }: RequestContext) => path.webhook_id_developer ?? '';

const eventParameter = withDocumentation(eventId(), { about: 'The `id` of the event.', example: '69214e6f0000000100' });
const listParameters = new Map<string, FieldType>([
  ['max', max],
  ['offset', paging.offset],
  ['format', format],
  ['fields', fieldsOf(columnsOf(delivery))],
]);

const secret = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDAAAAAAAAAAA=';
const shownSecret: Schema = { type: 'string', description: 'The secret, shown only now.', examples: [secret] };
const secretDetails = describeClosed(
  'WebhookSecret',
  'The secret with which requests to the receiver are signed.',
  { secret: shownSecret },
  { examples: [{ secret }] },
);

const [subject, lines] = ['Device is silent: Pump', 'Device: Pump\nBefore: Ok'];
const eventText = describeClosed(
  'EventText',
  'An event as webhooks of format `text` send it.',
  {
    subject: { type: 'string', description: 'What happened, in one line.', examples: [subject] },
    text: { type: 'string', description: 'The lines below the subject.', examples: [lines] },
  },
  { examples: [{ subject, text: lines }], xml: { name: 'response' } },
);

const withoutSecret = { ...secretDetails, title: 'CreatedWebhook', required: [] };

/** The answer of an update, which shows the secret that it has made. */
const updatedWebhook: ListedType = {
  ...webhook,
  title: 'UpdatedWebhook',
  readOnly: {
    ...webhook.readOnly,
    secret: optional(computed({ ...text(50), schema: shownSecret }), {
      about: 'The secret of a webhook that has become `standard`, shown only now.',
    }),
  },
  computed: {
    from: new Set(['new_secret']),
    print(stored, out) {
      const secret = stored.text('new_secret');
      if (secret !== undefined) out.member('secret', secret);
    },
  },
};

/** Creates the endpoints of webhooks (reference/webhooks.md#operations). */
export function webhookEndpoints(sender: SenderDeps): Endpoint[] {
  const hooks: ResourceHooks = {
    scope: 'admin',
    createdDetails: withoutSecret,
    async create(ctx, values) {
      const { set, faults } = webhook.toStored(values, { now: ctx.now, creating: true });
      throwIfAny('invalid', { ...faults, ...findMailFault(sender, values) });
      if (set.format !== 'standard') return { id: await createWebhook(ctx, values), details: {} };
      const place = { account: ctx.account, id_developer: `${values.name}@${ctx.account}` };
      const { shown, sealed } = await createSecret(sender.vault, place);
      return { id: await createWebhook(ctx, values, sealed), details: { secret: shown } };
    },
    updated: updatedWebhook,
    async update(ctx, values, write) {
      throwIfAny('invalid', findMailFault(sender, values));
      const prepared = await prepareWebhookUpdate(ctx, values);
      // null stands for the default
      if (values.format !== 'standard' && values.format !== null) return write(prepared);
      const { shown, sealed } = await createSecret(sender.vault, { account: ctx.account, id_developer: idOf(ctx) });
      const document = await write({ ...prepared, ...sealed });
      return isStoredSecret(document, sealed) ? mergeSecret(document, shown) : document;
    },
  };
  const sendNow = createImmediateSender(sender);
  return [
    ...resourceEndpoints(webhook, hooks),
    secretEndpoint(sender),
    listEndpoint(),
    testEndpoint(sendNow, sender),
    retryEndpoint(sendNow, sender),
    textEndpoint(sender),
  ];
}

function findMailFault({ mailer }: SenderDeps, { url }: Values): FieldErrors {
  const isRefused = mailer === undefined && typeof url === 'string' && isMailto(url);
  return isRefused ? { url: 'cannot be mailto: without SMTP_URL and SMTP_FROM' } : {};
}

function secretEndpoint({ vault }: SenderDeps): Endpoint {
  return {
    ...shared,
    operationId: 'createWebhookSecret',
    method: 'post',
    path: `${base}secret/`,
    summary: 'Make a new secret; for 24 h the former one signs too',
    description: 'The secret is shown only in this answer. It counts as an update of the webhook.',
    result: { kind: 'status', success: 'created', message: 'Webhook secret created', details: secretDetails },
    async handle(ctx) {
      return { details: { secret: await rotateSecret(ctx, vault, idOf(ctx)) } };
    },
  };
}

function listEndpoint(): Endpoint {
  return {
    ...shared,
    operationId: 'listWebhookDeliveries',
    path: `${base}deliveries/`,
    summary: 'List the last 1,000 attempts to send an event, newest first',
    ...createListing(
      delivery,
      (ctx, request) => listChildren(ctx, delivery, request, { parent: webhook, field: 'webhook', id: idOf(ctx) }),
      { params: listParameters, direction: -1 },
    ),
  };
}

/** Sends an event while its request waits, and keeps the attempt. */
type SendNow = (ctx: RequestContext, target: StoredWebhook, parcel: Parcel, attempt: number) => Promise<Attempt>;

function createImmediateSender(sender: SenderDeps): SendNow {
  const slots = createShares({ capacity: max_concurrent_tests, max_waiting });
  return async ({ account, caller, response, store }, target, parcel, attempt) => {
    if (!sender.isOn) throw new AppError('overloaded', { message: 'WEBHOOKS is off' });
    const closed = createCloseSignal(response);
    const send = async (signal = closed) => {
      const sent = await awaitServer(response, 'the receiver did not answer in time', () =>
        sendParcel(sender, target, parcel, { attempt, timeout_ms: receiver_timeout_ms, signal }),
      );
      await store.costly.run(account, () => recordAttempt(store.db, target, sent, parcel));
      return sent.attempt;
    };
    return slots.run(account, send, { limit_ms: slot_limit_ms, caller, signal: closed });
  };
}

/** @throws AppError notFound (4041) */
function findInTurn(ctx: RequestContext): Promise<StoredWebhook> {
  return ctx.store.costly.run(ctx.account, () => findWebhook(ctx, idOf(ctx)), {
    signal: createCloseSignal(ctx.response),
  });
}

function testEndpoint(sendNow: SendNow, { clock }: SenderDeps): Endpoint {
  return {
    ...shared,
    operationId: 'createWebhookTest',
    method: 'post',
    path: `${base}test/`,
    summary: 'Send a `webhook.test` event now, and answer its outcome',
    description:
      'The answer is 200 whatever the receiver does; `error` is absent if it took the event. It has 4 s. A disabled webhook is tested too.',
    result: { kind: 'status', success: 'created', message: 'Webhook tested', details: delivery },
    async handle(ctx) {
      const target = await findInTurn(ctx);
      return { details: await sendNow(ctx, target, { event: createTestEvent(ctx, target.id_developer, clock()) }, 1) };
    },
  };
}

/** Creates an event that is only sent, and in no log (reference/webhooks.md#test). `now_ms` in epoch milliseconds */
function createTestEvent(
  { account, user, request_id }: RequestContext,
  id_developer: string,
  now_ms: number,
): StoredEvent {
  const seconds = Math.floor(now_ms / 1000)
    .toString(16)
    .padStart(8, '0');
  const _id = seconds + randomBytes(5).toString('hex');
  const { name: resource } = webhook;
  const subject = { type: `${resource}.test`, resource, id_developer };
  return { _id, account, at: now_ms / 1000, ...subject, user, request_id };
}

function retryEndpoint(sendNow: SendNow, { isSelectedByFilter }: SenderDeps): Endpoint {
  const isSelected = async (target: StoredWebhook, stored: StoredEvent) =>
    isEventSelected(target, stored) &&
    (target.filter === undefined || (await isSelectedByFilter(target.filter, stored)));

  return {
    ...shared,
    operationId: 'createWebhookRetry',
    method: 'post',
    path: `${base}deliveries/{event}/retry/`,
    pathParameters: { ...ofWebhook, event: eventParameter },
    summary: 'Send an event of the log again now, and answer the outcome',
    description:
      'The webhook must select the event, or have been sent it. The receiver has 4 s. Success ends the retries of the event.',
    result: { kind: 'status', success: 'created', message: 'Webhook event sent', details: delivery },
    async handle(ctx) {
      const id = parseEventId(ctx);
      const { db } = ctx.store;
      const target = await findInTurn(ctx);
      const [stored, last] = await Promise.all([findEvent(db, ctx.account, id), findLastAttempt(db, target, id)]);
      if (stored === undefined || (last === undefined && !(await isSelected(target, stored))))
        throw new AppError('notFound');
      const parcel = { event: stored, digest: last?.digest };
      const sent = await sendNow(ctx, target, parcel, (last?.attempt ?? 0) + 1);
      if (sent.error === undefined) await removeRetry(db, target.run, id);
      return { details: sent };
    },
  };
}

/** The text of an event, before a webhook is made that would send it. */
function textEndpoint({ describe }: SenderDeps): Endpoint {
  return {
    tag: 'webhooks',
    scope: 'admin',
    limitedKeys: 'refused',
    operationId: 'getEventText',
    method: 'get',
    path: '/events/{event}/text/',
    pathParameters: { event: eventParameter },
    summary: 'Show the text of an event, as webhooks send it to people',
    result: { kind: 'plain', schema: eventText },
    async handle(ctx) {
      const { account, store } = ctx;
      const id = parseEventId(ctx);
      const stored = await store.costly.run(account, () => findEvent(store.db, account, id), {
        signal: createCloseSignal(ctx.response),
      });
      if (stored === undefined) throw new AppError('notFound');
      const message = await describe(account, stored);
      return { details: { subject: message.title, text: writeBody(message) } };
    },
  };
}

/** @throws AppError badParameter (4004) */
function parseEventId({ path }: RequestContext): string {
  const { event = '' } = path;
  const faults = {};
  eventParameter.body(event, 'event', faults);
  if (Object.keys(faults).length > 0) throw new AppError('badParameter', faults);
  return event;
}
