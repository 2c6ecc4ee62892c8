import { setTimeout as sleep } from 'node:timers/promises';
import { describeCause, parseBaseUrl, parseBody, RetryableError, throwIfRejected } from '../src/cli/stream-client.js';

/** The fields of a listed resource that the demo and the simulator use. */
export interface ListedResource {
  id_developer?: string;
  [field: string]: unknown;
}

/** The fields of a response body that they use. */
export interface ResponseBody {
  code?: number;
  message?: string;
  details?: Record<string, unknown>;
  total_documents?: number;
  result?: ListedResource[];
}

export interface Reply {
  url: string;
  status: number;
  body: ResponseBody;
  /** The headers Location and Date; empty if missing. */
  location: string;
  date: string;
}

/** Sends a request. @throws RetryableError; Error if the API key is rejected or the server is not the service */
export type Send = (method: 'GET' | 'POST' | 'PUT' | 'PATCH', path: string, body?: object) => Promise<Reply>;

/** Body that creates a resource with a name. */
export interface NamedBody {
  name: string;
  [field: string]: unknown;
}

const timeout_ms = 15_000;
const retry_delays_ms = [250, 500, 1000, 2000, 4000, 8000, 8000];

/** Creates a client for the service at `url`, its {base_url}. @throws Error if `url` or `key` cannot be valid */
export function createApiClient(url: string, key: string): Send {
  const base = parseBaseUrl(url, key);
  const headers = { 'service.apikey': key, accept: 'application/json', 'content-type': 'application/json' };

  return async (method, path, body) => {
    const request: RequestInit = { method, headers, redirect: 'error', signal: AbortSignal.timeout(timeout_ms) };
    if (body !== undefined) request.body = JSON.stringify(body);
    const throwUnreachable = (error: unknown) => {
      throw new RetryableError(`${base} is unreachable: ${describeCause(error)}`);
    };
    const response = await fetch(base + path, request).catch(throwUnreachable);
    const text = await response.text().catch(throwUnreachable);
    const { status } = response;
    throwIfRejected(status);
    const { location = '', date = '', 'retry-after': retry_after_s } = Object.fromEntries(response.headers);
    if (status === 429 || status >= 502) {
      const message = `${method} ${base}${path}: ${status} ${text.slice(0, 200)}`;
      throw new RetryableError(message, { hasResponse: true, retry_after_ms: Number(retry_after_s) * 1000 || 0 });
    }
    return { url: base + path, status, body: parseBody<ResponseBody>(text, base), location, date };
  };
}

/** Repeats an attempt, with growing delays, as long as it fails with RetryableError; gives up after some 24 s. */
export async function retry<T>(attempt: (isRepeated: boolean) => Promise<T>): Promise<T> {
  for (let failureCount = 0; ; failureCount += 1) {
    try {
      return await attempt(failureCount > 0);
    } catch (error) {
      const delay_ms = retry_delays_ms[failureCount];
      if (!(error instanceof RetryableError) || delay_ms === undefined) throw error;
      await sleep(Math.max(delay_ms, error.retry_after_ms));
    }
  }
}

/** Creates an error for an unexpected response. */
export function createResponseError(method: string, { url, status, body }: Reply): Error {
  return new Error(`${method} ${url} failed: ${status} ${JSON.stringify(body)}`);
}

/** Sends a request once. @returns the body @throws Error unless the status is 200 */
export async function sendOrThrow(
  send: Send,
  method: Parameters<Send>[0],
  path: string,
  body?: object,
): Promise<ResponseBody> {
  const reply = await send(method, path, body);
  if (reply.status !== 200) throw createResponseError(method, reply);
  return reply.body;
}

/** Returns the identifier in the Location of a created resource (reference/resources.md#create). @throws Error if none was created */
export function parseCreatedId(reply: Reply): string {
  if (reply.body.code !== 2001 || reply.location === '') throw createResponseError('POST', reply);
  return decodeURIComponent(reply.location.replace(/\/$/, '').replace(/.*\//, ''));
}

/** Creates a resource, or finds the one that has its name: a taken name is 4003 (reference/resources.md#create). */
export async function ensureResource(
  send: Send,
  plural: string,
  body: NamedBody,
): Promise<{ id: string; isNew: boolean }> {
  const path = `/${plural}/`;
  const reply = await retry(() => send('POST', path, body));
  if (reply.body.code !== 4003 || !reply.body.details?.name) return { id: parseCreatedId(reply), isNew: true };
  const list = await retry(() => send('GET', `${path}?name=${encodeURIComponent(body.name)}`));
  const id = list.body.result?.[0]?.id_developer;
  if (id === undefined) throw createResponseError('POST', reply);
  return { id, isNew: false };
}

/** Lists the devices of a group page by page; `filter` is appended to the query. */
export async function* listDevices(send: Send, id_group: string, filter = ''): AsyncGenerator<ListedResource> {
  for (let offset = 0; ; offset += 1000) {
    const path = `/groups/${encodeURIComponent(id_group)}/devices/?max=1000&offset=${offset}${filter}`;
    const { body } = await retry(() => send('GET', path));
    const page = body.result ?? [];
    yield* page;
    if (page.length < 1000) return;
  }
}
