import { setTimeout as sleep } from 'node:timers/promises';

/** The fields of a listed resource that the tools use. */
export interface ListedResource {
  id_developer?: string;
  [field: string]: unknown;
}

/** The fields of a response body that the tools use. */
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

/** The service is unreachable, overloaded or limits the rate. */
export class RetryableError extends Error {
  readonly hasResponse: boolean;
  readonly retry_after_ms: number;
  constructor(message: string, response?: Response, hasResponse = response !== undefined) {
    super(message);
    this.hasResponse = hasResponse;
    this.retry_after_ms = Number(response?.headers.get('retry-after') ?? 0) * 1000 || 0;
  }
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
    if (status === 429 || status >= 502)
      throw new RetryableError(`${method} ${base}${path}: ${status} ${text.slice(0, 200)}`, response);
    const { location = '', date = '' } = Object.fromEntries(response.headers);
    return { url: base + path, status, body: parseBody(text, base), location, date };
  };
}

/** Checks the base URL and the key. @returns the URL without a slash at its end. @throws Error if they cannot be valid */
export function parseBaseUrl(url: string, key: string): string {
  if (!URL.canParse(url) || !/^https?:/i.test(url)) throw new Error(`not an http URL: ${url}`);
  // error messages of clients would contain the key
  if (!/^[\x21-\x7e]+$/.test(key)) throw new Error('the API key is rejected: it contains invalid characters');
  return url.replace(/\/+$/, '');
}

/** @throws Error if the status is that of a rejected key */
export function throwIfRejected(status: number): void {
  if (status === 401) throw new Error('the API key is rejected: unknown, revoked or expired (401)');
  if (status === 403) throw new Error('the API key is rejected: its scope is too small (403)');
}

/** Parses a body that should be JSON of the service. @throws Error otherwise */
export function parseBody(text: string, base: string): ResponseBody {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === 'object' && body !== null) return body;
  } catch {}
  throw new Error(`the server at ${base} is not the service: is this its base URL?`);
}

/** Returns the reason of a failed connection, which fetch keeps in `cause`. */
export function describeCause(error: unknown): string {
  const { cause = error } = error instanceof Error ? error : {};
  if (!(cause instanceof Error)) return String(cause);
  return ('code' in cause && typeof cause.code === 'string' && cause.code) || cause.message || cause.name;
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
