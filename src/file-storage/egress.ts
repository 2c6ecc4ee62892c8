import type { IncomingMessage } from 'node:http';
import { type Network, openNetwork, readBody, toEgressFault } from '../egress/network.js';
import { MissingFault, StorageFault, type StorageLimits } from './limits.js';

/** Opens the way out to storage servers, whose every failure is a StorageFault. */
export function openStorageNetwork(options: Omit<Parameters<typeof openNetwork>[0], 'variable'>): Network {
  const network = openNetwork({ ...options, variable: 'FILESTORE_ALLOW_NETS' });
  return {
    send: (url, request) =>
      network.send(url, request).catch((error: unknown) => {
        throw toStorageFault(error, request.signal);
      }),
  };
}

function createTooLongFault(): StorageFault {
  return new StorageFault('address', 'answers with more than can be taken');
}

function toStorageFault(error: unknown, signal: AbortSignal): StorageFault {
  if (error instanceof StorageFault) return error;
  const { message, cause } = toEgressFault(error, signal);
  return new StorageFault('address', message, { cause });
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
  const body = await readBody(readResponse(response, limits), max_text_bytes);
  if (body === undefined) throw createTooLongFault();
  return body.toString();
}

const max_drained_bytes = 64 * 1024;

/** Asserts the status of a response. The short body of a refusal is drained to keep its connection usable. @throws StorageFault */
export async function assertStatus(response: IncomingMessage, expected: number): Promise<void> {
  const { statusCode: status = 0 } = response;
  if (status === expected) return;
  if (Number(response.headers['content-length'] ?? max_drained_bytes) < max_drained_bytes) response.resume();
  else response.destroy();
  if (status === 401 || status === 403) throw new StorageFault('login', 'was refused by the storage');
  if (status === 404 || status === 409) throw new MissingFault();
  throw new StorageFault('address', `answered with status ${status}`);
}

/** Tests that a text is an http or https address with nothing but host, port and path. */
export function isStorageAddress(text: string): boolean {
  // a URL parser takes http:host and http:/host for http://host
  if (!/^https?:\/\/[^/]/i.test(text) || !URL.canParse(text)) return false;
  const { username, password, search, hash } = new URL(text);
  return username + password + search + hash === '';
}
