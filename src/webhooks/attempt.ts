import type { IncomingMessage } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { type Network, toEgressFault } from '../egress/network.js';
import type { IsSelectedByFilter } from '../events/device-filter.js';
import { runWithTimeLimit } from '../lib/time-limit.js';
import type { Vault } from '../lib/vault.js';
import { event } from '../resources/index.js';
import { writeObject } from '../serialize/object.js';
import { projectionOf } from '../serialize/projections.js';
import type { Attempt, OutgoingEvent } from './deliveries.js';
import { openSigningSecrets } from './secrets.js';
import type { StoredWebhook } from './store.js';

/** Everything that sending an event needs. */
export interface SenderDeps {
  vault: Vault;
  network: Network;
  /** Epoch milliseconds. */
  clock: () => number;
  isSelectedByFilter: IsSelectedByFilter;
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
const projection = projectionOf(event, 'list');

/**
 * Sends an event to the receiver of a webhook, signed by Standard Webhooks (reference/webhooks.md#requests). The result
 * has an `error` unless a status of 2xx came in time, and the answer was not broken off.
 * @throws AppError exception (5032) if the secret cannot be opened; the signal's reason if it ended the attempt
 */
export async function sendEvent(
  { vault, network, clock }: SenderDeps,
  target: StoredWebhook,
  { stored: { _id: id, type }, bson }: OutgoingEvent,
  { attempt, timeout_ms, signal }: AttemptOptions,
): Promise<Attempt> {
  const began_at = clock();
  const started = performance.now();
  const secrets = await openSigningSecrets(vault, target, began_at / 1000);
  const body = writeObject(bson, projection, 'json', { now: began_at / 1000, inherited: new Map() }).toString();
  const sent_at = new Date(began_at);
  const headers = {
    'Content-Type': 'application/json',
    'User-Agent': 'device-platform-webhooks',
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(began_at / 1000)),
    'webhook-signature': secrets.map((secret) => new Webhook(secret).sign(id, sent_at, body)).join(' '),
  };
  const result = { event: id, type, at: began_at / 1000, attempt };
  const request = { account: target.account, method: 'POST', headers, body };
  const outcome = await runWithTimeLimit(timeout_ms, signal, (limit) =>
    exchange(network, new URL(target.url), { ...request, signal: limit }),
  );
  signal.throwIfAborted();
  return { ...result, ...outcome, took_ms: Math.round(performance.now() - started) };
}

type Outcome = Pick<Attempt, 'status' | 'error'>;

async function exchange(network: Network, url: URL, request: Parameters<Network['send']>[1]): Promise<Outcome> {
  let status: number | undefined;
  try {
    const response = await network.send(url, request);
    status = response.statusCode ?? 0;
    await drain(response);
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

/** Reads an answer to its end, so that its connection can be used again, or up to the limit. */
async function drain(response: IncomingMessage): Promise<void> {
  let left_bytes = max_answer_bytes;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    left_bytes -= chunk.length;
    // leaving the loop closes the connection
    if (left_bytes < 0) return;
  }
}
