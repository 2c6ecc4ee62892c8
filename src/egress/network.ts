import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { createAddressFilter } from './addresses.js';
import { createResolver, type Resolve } from './resolver.js';

interface OutgoingRequest {
  /** The account that chose the address. */
  account: string;
  method: string;
  headers?: Readonly<Record<string, string>>;
  body?: string;
  signal: AbortSignal;
}

/** The only way for requests out of the service (reference/file-storage.md#allowed-addresses). */
export interface Network {
  /**
   * Sends a request; resolves with the response once its headers are there. Redirects are not followed. Ends with `signal`
   * at the latest, whatever the server does.
   * @throws EgressFault for blocked addresses and for servers that cannot be reached
   */
  send(url: URL, request: OutgoingRequest): Promise<IncomingMessage>;
}

/** A request that was not sent, or not answered; the message goes to clients. */
export class EgressFault extends Error {
  override name = 'EgressFault';
  /** Status of a response that is refused, such as a redirect. */
  readonly status: number | undefined;

  constructor(message: string, { status, ...options }: ErrorOptions & { status?: number } = {}) {
    super(message, options);
    this.status = status;
  }
}

interface Options {
  /** Networks in CIDR notation that may be reached although they are not public. */
  allow_nets: readonly string[];
  /** The environment variable that sets them. */
  variable: string;
  resolve?: Resolve;
}

/** Ends connections that transfer nothing: idle ones, and downloads whose client stopped reading. */
const idle_timeout_ms = 120_000;

/** Opens the way out to public and allowed addresses. Each name is resolved once, and only checked addresses are connected to. */
export function openNetwork({ allow_nets, variable, resolve = createResolver() }: Options): Network {
  const isAllowed = createAddressFilter(allow_nets);
  const createBlockedFault = () => new EgressFault(`must be a public address, or one that ${variable} allows`);
  const createLookup =
    (account: string, signal: AbortSignal): LookupFunction =>
    (name, options, callback) => {
      resolve(account, name, signal).then(
        (addresses) => {
          const [first] = addresses;
          if (first === undefined || !addresses.every(({ address }) => isAllowed(address))) {
            callback(createBlockedFault(), '', 0);
          } else if (options.all) callback(null, [...addresses]);
          else callback(null, first.address, first.family);
        },
        (error: Error) => callback(error as NodeJS.ErrnoException, '', 0),
      );
    };
  const pool = { keepAlive: true, timeout: idle_timeout_ms };
  const schemes = new Map([
    ['http:', { request: http.request, agent: new http.Agent(pool) }],
    ['https:', { request: https.request, agent: new https.Agent(pool) }],
  ]);
  return {
    async send(url, { account, method, headers = {}, body, signal }) {
      const scheme = schemes.get(url.protocol);
      const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
      // Node does not look up a host that is an address already
      if (scheme === undefined || (isIP(host) !== 0 && !isAllowed(host))) throw createBlockedFault();
      const { agent, request } = scheme;
      const length = body !== undefined && { 'Content-Length': String(Buffer.byteLength(body)) };
      const options = { agent, lookup: createLookup(account, signal), method, signal, timeout: idle_timeout_ms };
      const start = () => request(url, { ...options, headers: { ...headers, ...length } });
      const response = await awaitResponse(start, body, signal).catch((error: unknown) => {
        throw toEgressFault(error, signal);
      });
      // an unread response must not raise an unhandled 'error'
      response.on('error', () => undefined);
      // a body that only the end of its connection ends would seem complete
      const breakOff = () => response.destroy(signal.reason);
      signal.addEventListener('abort', breakOff);
      response.once('close', () => signal.removeEventListener('abort', breakOff));
      const { statusCode: status = 0 } = response;
      if (status < 300 || status >= 400 || status === 304) return response;
      response.destroy();
      throw new EgressFault('redirects elsewhere, which is not followed; give the final address', { status });
    },
  };
}

/** Sends a request; once more if the server closed the idle connection that it was sent on. */
async function awaitResponse(
  start: () => ClientRequest,
  body: string | undefined,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  for (;;) {
    const outgoing = start();
    try {
      return await new Promise<IncomingMessage>((resolve, reject) => {
        outgoing.once('timeout', () => outgoing.destroy());
        outgoing.once('response', resolve).once('error', reject).end(body);
        outgoing.once('upgrade', (_response, socket) => {
          socket.destroy();
          reject(new EgressFault('answered with status 101', { status: 101 }));
        });
        outgoing.once('close', () => reject(signal.reason ?? new Error('closed')));
      });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (!outgoing.reusedSocket || (code !== 'ECONNRESET' && code !== 'EPIPE')) throw error;
    }
  }
}

/** Reads the body of a response. @returns undefined if it is longer: its connection is closed */
export async function readBody(body: AsyncIterable<Buffer>, max_bytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let left_bytes = max_bytes;
  for await (const chunk of body) {
    left_bytes -= chunk.length;
    // leaving the loop closes the connection
    if (left_bytes < 0) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Converts an error of a connection. */
export function toEgressFault(error: unknown, signal: AbortSignal): EgressFault {
  if (error instanceof EgressFault) return error;
  return new EgressFault(signal.aborted ? 'did not answer in time' : describe(error), { cause: error });
}

function describe(error: unknown): string {
  const { code = '' } = error as NodeJS.ErrnoException;
  if (code === 'HPE_HEADER_OVERFLOW') return 'answered with too many headers';
  if (code.startsWith('HPE_')) return 'did not answer in valid HTTP';
  return code === 'ECONNRESET' || code === 'EPIPE' ? 'closed the connection without an answer' : 'could not be reached';
}
