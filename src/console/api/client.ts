import { RequestError } from './errors.js';
import type { StatusAnswer } from './interface.js';
import { pageSettings } from './page-settings.js';
import { readCredential } from './sign-in.js';

export type Query = Readonly<Record<string, string | number | undefined>>;

export interface Call {
  query?: Query;
  body?: unknown;
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
}

/** Sends a request with the key or the token of this tab to a path of the interface. @throws RequestError unless the answer is 2xx */
export async function send(method: string, path: string, call: Call = {}): Promise<Response> {
  const { body, headers, signal } = call;
  const credential = await readCredential();
  const response = await fetch(addressOf(path, call.query), {
    method,
    headers: { Accept: 'application/json', ...credential, ...headers },
    body: body instanceof Blob ? body : JSON.stringify(body),
    signal,
    cache: 'no-store',
    credentials: 'omit',
  }).catch((error: unknown) => {
    throw signal?.aborted ? error : new RequestError(0, 0, 'no answer');
  });
  if (!response.ok) throw await toRequestError(response);
  return response;
}

/** Sends a request and reads the JSON of the answer. @throws RequestError */
export async function request<T>(method: string, path: string, call?: Call): Promise<T> {
  const response = await send(method, path, call);
  return (await response.json()) as T;
}

/** Reads the name of a request in events. */
export function readRequestId({ headers }: Response): string | undefined {
  return headers.get('X-Request-Id') ?? undefined;
}

/** Builds a path below {base_url} from segments, percent-encoded. */
export function pathOf(...segments: string[]): string {
  return `/${segments.map(encodeURIComponent).join('/')}/`;
}

/** Builds the address of a request, below the origin of the service. */
export function addressOf(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.append(name, String(value));
  const search = parameters.toString();
  return `${pageSettings.base}${path}${search === '' ? '' : `?${search}`}`;
}

async function toRequestError(response: Response): Promise<RequestError> {
  const wait = Number(response.headers.get('Retry-After') ?? Number.NaN);
  const body: unknown = await response.json().catch(() => undefined);
  const { code, message, details } = isStatus(body)
    ? body
    : { code: response.status * 10 + 1, message: response.statusText, details: {} };
  const retry_after_s = Number.isFinite(wait) ? wait : undefined;
  return new RequestError(response.status, code, message, details, retry_after_s, readRequestId(response));
}

function isStatus(body: unknown): body is StatusAnswer {
  return typeof body === 'object' && body !== null && 'code' in body && typeof body.code === 'number';
}
