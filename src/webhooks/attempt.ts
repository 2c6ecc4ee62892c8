import mongoose from 'mongoose';
import { Webhook } from 'standardwebhooks';
import { type Network, readBody, toEgressFault } from '../egress/network.js';
import type { IsSelectedByFilter } from '../events/device-filter.js';
import { parseMailto } from '../lib/mail-addresses.js';
import { runWithTimeLimit } from '../lib/time-limit.js';
import type { Vault } from '../lib/vault.js';
import { event } from '../resources/index.js';
import { writeObject } from '../serialize/object.js';
import { projectionOf } from '../serialize/projections.js';
import type { AttemptOutcome, Parcel, SentParcel } from './deliveries.js';
import type { Describe } from './describe.js';
import { writers } from './formats.js';
import type { Mailer } from './mailer.js';
import { openSigningSecrets } from './secrets.js';
import type { StoredWebhook } from './store.js';

/** Everything that sending an event needs. */
export interface SenderDeps {
  vault: Vault;
  network: Network;
  /** Epoch milliseconds. */
  clock: () => number;
  isSelectedByFilter: IsSelectedByFilter;
  describe: Describe;
  /** Address of the console; undefined: there is none. */
  consoleUrl: () => string | undefined;
  /** Absent without SMTP_URL and SMTP_FROM. */
  mailer: Mailer | undefined;
  /** False with WEBHOOKS=off. */
  isOn: boolean;
}

interface AttemptOptions {
  /** Number of this attempt, from 1 on. */
  attempt: number;
  timeout_ms: number;
  /** Ends the attempt early. */
  signal: AbortSignal;
}

/** Bytes of an answer that are read before the connection is closed. */
const max_answer_bytes = 64 * 1024;
const commonHeaders = { 'User-Agent': 'device-platform-webhooks' };
const projection = projectionOf(event, 'list');
const { BSON } = mongoose.mongo;

/**
 * Sends a parcel to the receiver of a webhook (reference/webhooks.md#requests). The attempt has an `error` unless a status
 * of 2xx came in time, and the answer was not broken off; or unless the mail server took it for every address.
 * @throws AppError exception (5032) if the secret cannot be opened; the signal's reason if it ended the attempt
 */
export async function sendParcel(
  deps: SenderDeps,
  target: StoredWebhook,
  parcel: Parcel,
  { attempt, timeout_ms, signal }: AttemptOptions,
): Promise<SentParcel> {
  const began_at = deps.clock();
  const started = performance.now();
  const send = await prepare(deps, target, parcel, began_at);
  const { status, error, ...outcome } = await runWithTimeLimit(timeout_ms, signal, send);
  signal.throwIfAborted();
  const { _id: event, type } = parcel.event;
  const { count } = parcel.digest ?? {};
  const took_ms = Math.round(performance.now() - started);
  const result = { event, type, ...(count !== undefined && { count }), at: began_at / 1000, attempt };
  return {
    attempt: { ...result, ...(status !== undefined && { status }), ...(error !== undefined && { error }), took_ms },
    ...outcome,
  };
}

/** Writes what is sent, and returns the function that sends it. */
async function prepare(deps: SenderDeps, target: StoredWebhook, parcel: Parcel, now_ms: number) {
  const { network, mailer, describe } = deps;
  const { account, url, format } = target;
  if (format === 'standard') {
    const request = await sign(deps, target, parcel, now_ms);
    return (signal: AbortSignal) => exchange(network, new URL(url), { ...request, signal });
  }
  const message = parcel.digest?.message ?? (await describe(account, parcel.event));
  const listed = parseMailto(url, Number.POSITIVE_INFINITY);
  if (listed !== undefined) {
    // the webhook may have other addresses by now
    const addresses = [...new Set(listed)].filter((address) => parcel.addresses?.includes(address) ?? true);
    if (mailer === undefined) return async () => ({ error: 'SMTP_URL and SMTP_FROM are not set' });
    return (signal: AbortSignal) => mailer.send({ account, addresses, message, signal });
  }
  const { type, headers, body, query } = writers[format](message);
  const address = new URL(url);
  for (const [name, value] of Object.entries(query ?? {})) address.searchParams.set(name, value);
  const request = { account, method: 'POST', headers: { ...commonHeaders, 'Content-Type': type, ...headers }, body };
  return (signal: AbortSignal) => exchange(network, address, { ...request, signal });
}

/** Builds the request of Standard Webhooks. */
async function sign({ vault }: SenderDeps, target: StoredWebhook, { event }: Parcel, now_ms: number) {
  const { _id: id } = event;
  const secrets = await openSigningSecrets(vault, target, now_ms / 1000);
  const body = writeObject(BSON.serialize(event), projection, 'json', {
    now: now_ms / 1000,
    inherited: new Map(),
  }).toString();
  const sent_at = new Date(now_ms);
  const headers = {
    ...commonHeaders,
    'Content-Type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(now_ms / 1000)),
    'webhook-signature': secrets.map((secret) => new Webhook(secret).sign(id, sent_at, body)).join(' '),
  };
  return { account: target.account, method: 'POST', headers, body };
}

async function exchange(network: Network, url: URL, request: Parameters<Network['send']>[1]): Promise<AttemptOutcome> {
  let status: number | undefined;
  try {
    const response = await network.send(url, request);
    status = response.statusCode ?? 0;
    // to its end, so that its connection can be used again, or up to the limit
    await readBody(response, max_answer_bytes);
  } catch (error) {
    if (status === undefined) {
      const { message, status: refused } = toEgressFault(error, request.signal);
      return { ...(refused !== undefined && { status: refused }), error: message };
    }
    // a body that does not end changes nothing about the status
    if (!request.signal.aborted) return { status, error: 'broke off its answer' };
  }
  return status >= 200 && status < 300 ? { status } : { status, error: `answered with status ${status}` };
}
