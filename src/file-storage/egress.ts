import { lookup } from 'node:dns/promises';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { createAddressFilter } from './addresses.js';
import { StorageFault, type StorageLimits } from './limits.js';

interface OutgoingRequest {
  method: string;
  headers?: Readonly<Record<string, string>>;
  body?: string;
  signal: AbortSignal;
}

/** The only way for requests out of the service (reference/file-storage.md#allowed-addresses). */
export interface Network {
  /**
   * Sends a request; resolves with the response once its headers are there. Redirects are not followed.
   * @throws StorageFault for blocked addresses and for servers that cannot be reached
   */
  send(url: URL, request: OutgoingRequest): Promise<IncomingMessage>;
}

interface Options {
  /** FILESTORE_ALLOW_NETS */
  allow_nets: readonly string[];
  /** Resolves a name to all its addresses; the system's resolver by default. */
  resolve?: (name: string) => Promise<{ address: string; family: number }[]>;
}

/** Ends connections that transfer nothing, such as a download whose client stopped reading. */
const idle_timeout_ms = 120_000;
const not_public = 'must be a public address, or one that FILESTORE_ALLOW_NETS allows';
const resolveBySystem = (name: string) => lookup(name, { all: true, verbatim: true });

/** Opens the way out to public and allowed addresses. Each name is resolved once, and only checked addresses are connected to. */
export function openNetwork({ allow_nets, resolve = resolveBySystem }: Options): Network {
  const isAllowed = createAddressFilter(allow_nets);
  const lookupChecked: LookupFunction = (name, options, callback) => {
    resolve(name).then(
      (addresses) => {
        const [first] = addresses;
        if (first === undefined || !addresses.every(({ address }) => isAllowed(address))) {
          callback(new StorageFault('address', not_public), '', 0);
        } else if (options.all) callback(null, addresses);
        else callback(null, first.address, first.family);
      },
      (error: Error) => callback(error as NodeJS.ErrnoException, '', 0),
    );
  };
  const schemes = new Map([
    ['http:', { request: http.request, agent: new http.Agent({ keepAlive: true }) }],
    ['https:', { request: https.request, agent: new https.Agent({ keepAlive: true }) }],
  ]);
  return {
    async send(url, { method, headers = {}, body, signal }) {
      const scheme = schemes.get(url.protocol);
      const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
      // Node does not look up a host that is an address already
      if (scheme === undefined || (isIP(host) !== 0 && !isAllowed(host))) throw new StorageFault('address', not_public);
      const response = await new Promise<IncomingMessage>((resolve, reject) => {
        const { agent, request } = scheme;
        const outgoing = request(url, {
          agent,
          lookup: lookupChecked,
          method,
          signal,
          timeout: idle_timeout_ms,
          headers: { ...headers, ...(body !== undefined && { 'Content-Length': String(Buffer.byteLength(body)) }) },
        });
        outgoing.once('timeout', () => outgoing.destroy());
        outgoing.once('response', resolve).once('error', reject).end(body);
      }).catch((error: unknown) => {
        throw toStorageFault(error, signal);
      });
      // an unread response must not raise an unhandled 'error'
      response.on('error', () => undefined);
      const { statusCode: status = 0 } = response;
      if (status < 300 || status >= 400 || status === 304) return response;
      response.destroy();
      throw new StorageFault('address', 'redirects elsewhere, which is not followed; give the final address');
    },
  };
}

function createTooLongFault(): StorageFault {
  return new StorageFault('address', 'answers with more than can be taken');
}

function toStorageFault(error: unknown, signal: AbortSignal): StorageFault {
  if (error instanceof StorageFault) return error;
  return new StorageFault('address', signal.aborted ? 'did not answer in time' : 'could not be reached', {
    cause: error,
  });
}

/** Reads the body of a response within the limits. @throws StorageFault */
export async function* readResponse(response: IncomingMessage, limits: StorageLimits): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      limits.bytes -= chunk.length;
      if (limits.bytes < 0) throw createTooLongFault();
      yield chunk;
    }
  } catch (error) {
    throw toStorageFault(error, limits.signal);
  }
}

/** Decoding and parsing a longer text would hold up the event loop. */
const max_text_bytes = 8 * 1024 * 1024;

/** Reads the whole body of a response as text. @throws StorageFault */
export async function readResponseText(response: IncomingMessage, limits: StorageLimits): Promise<string> {
  const chunks: Buffer[] = [];
  let left_bytes = max_text_bytes;
  for await (const chunk of readResponse(response, limits)) {
    left_bytes -= chunk.length;
    if (left_bytes < 0) throw createTooLongFault();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

const max_drained_bytes = 64 * 1024;

/** Asserts the status of a response. The short body of a refusal is drained to keep its connection usable. @throws StorageFault */
export async function assertStatus(response: IncomingMessage, expected: number): Promise<void> {
  const { statusCode: status = 0 } = response;
  if (status === expected) return;
  if (Number(response.headers['content-length'] ?? max_drained_bytes) < max_drained_bytes) response.resume();
  else response.destroy();
  if (status === 401 || status === 403) throw new StorageFault('login', 'was refused by the storage');
  if (status === 404 || status === 409) throw new StorageFault('folder', 'does not exist');
  throw new StorageFault('address', `answered with status ${status}`);
}

/** Tests that a text is an http or https address with nothing but host, port and path. */
export function isStorageAddress(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, search, hash, hostname } = new URL(text);
  return /^https?:$/.test(protocol) && hostname !== '' && username + password + search + hash === '';
}
