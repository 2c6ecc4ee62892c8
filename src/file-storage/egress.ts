import { lookup } from 'node:dns/promises';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { addressRule } from './addresses.js';
import { StorageFault, type StorageLimits } from './limits.js';

interface Outgoing {
  method: string;
  headers?: Readonly<Record<string, string>>;
  body?: string;
  signal: AbortSignal;
}

/** The way out of the service; there is no other (contract 10). */
export interface Network {
  /**
   * Sends a request and answers with the head of the answer there and its body to come. Redirects are not followed.
   * @throws StorageFault for addresses that are not allowed, and what does not answer
   */
  send(url: URL, outgoing: Outgoing): Promise<IncomingMessage>;
}

interface Options {
  /** FILESTORE_ALLOW_NETS */
  allow_nets: readonly string[];
  /** All addresses of a name; that of the system where absent. */
  resolve?: (name: string) => Promise<{ address: string; family: number }[]>;
}

/** A connection that nothing comes from, be it that the client of a download does not read. */
const idle_ms = 120_000;
const notPublic = 'must be a public address, or one that FILESTORE_ALLOW_NETS allows';
const systemAddresses = (name: string) => lookup(name, { all: true, verbatim: true });

/** Reaches what is public or allowed: names are resolved once, and connected to is only what was checked. */
export function openNetwork({ allow_nets, resolve = systemAddresses }: Options): Network {
  const mayReach = addressRule(allow_nets);
  const checkedLookup: LookupFunction = (name, options, done) => {
    resolve(name).then(
      (addresses) => {
        const [first] = addresses;
        if (first === undefined || !addresses.every(({ address }) => mayReach(address))) {
          done(new StorageFault('address', notPublic), '', 0);
        } else if (options.all) done(null, addresses);
        else done(null, first.address, first.family);
      },
      (error: Error) => done(error as NodeJS.ErrnoException, '', 0),
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
      // an address in place of a name is not looked up
      if (scheme === undefined || (isIP(host) !== 0 && !mayReach(host))) throw new StorageFault('address', notPublic);
      const answer = await new Promise<IncomingMessage>((resolved, failed) => {
        const { agent, request } = scheme;
        const outgoing = request(url, {
          agent,
          lookup: checkedLookup,
          method,
          signal,
          timeout: idle_ms,
          headers: { ...headers, ...(body !== undefined && { 'Content-Length': String(Buffer.byteLength(body)) }) },
        });
        outgoing.once('timeout', () => outgoing.destroy());
        outgoing.once('response', resolved).once('error', failed).end(body);
      }).catch((error: unknown) => {
        throw unreachable(error, signal);
      });
      // what nobody reads must not end the process
      answer.on('error', () => undefined);
      const { statusCode: status = 0 } = answer;
      if (status < 300 || status >= 400 || status === 304) return answer;
      answer.destroy();
      throw new StorageFault('address', 'redirects elsewhere, which is not followed; give the final address');
    },
  };
}

function unreachable(error: unknown, signal: AbortSignal): StorageFault {
  if (error instanceof StorageFault) return error;
  return new StorageFault('address', signal.aborted ? 'did not answer in time' : 'could not be reached', {
    cause: error,
  });
}

/** The body of an answer within the bounds. @throws StorageFault */
export async function* bodyOf(answer: IncomingMessage, bounds: StorageLimits): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bounds.bytes -= chunk.length;
      if (bounds.bytes < 0) throw new StorageFault('address', 'answers with more than can be taken');
      yield chunk;
    }
  } catch (error) {
    throw unreachable(error, bounds.signal);
  }
}

/** All of it as text. @throws StorageFault */
export async function textOf(answer: IncomingMessage, bounds: StorageLimits): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of bodyOf(answer, bounds)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const long_refusal_bytes = 64 * 1024;

/** Refuses an answer of a status that is not `expected`; a short rest of it is read, so that its connection stays usable. */
export async function mustAnswer(answer: IncomingMessage, expected: number): Promise<void> {
  const { statusCode: status = 0 } = answer;
  if (status === expected) return;
  if (Number(answer.headers['content-length'] ?? long_refusal_bytes) < long_refusal_bytes) answer.resume();
  else answer.destroy();
  if (status === 401 || status === 403) throw new StorageFault('login', 'was refused by the storage');
  if (status === 404 || status === 409) throw new StorageFault('folder', 'does not exist');
  throw new StorageFault('address', `answered with status ${status}`);
}

/** Whether a text is an address that a link may hold: http or https, and nothing but host, port and path. */
export function isStorageAddress(given: string): boolean {
  if (!URL.canParse(given)) return false;
  const { protocol, username, password, search, hash, hostname } = new URL(given);
  return /^https?:$/.test(protocol) && hostname !== '' && username + password + search + hash === '';
}
