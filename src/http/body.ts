import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { AppError } from '../errors.js';

const decoders = new Map([
  ['gzip', promisify(gunzip)],
  ['x-gzip', promisify(gunzip)],
  ['deflate', promisify(inflate)],
  ['br', promisify(brotliDecompress)],
]);

/** The bytes of a body, decompressed. @throws AppError tooLarge (4131) past `limit_bytes` */
export async function readBody(request: IncomingMessage, limit_bytes: number): Promise<Buffer> {
  const { 'content-length': announced, 'content-encoding': encoding = 'identity' } = request.headers;
  if (Number(announced) > limit_bytes) throw new AppError('tooLarge');
  const chunks: Buffer[] = [];
  let size = 0;
  // leaving the loop must not destroy the request: its socket carries the answer
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit_bytes) break;
    chunks.push(chunk);
  }
  if (size > limit_bytes) {
    request.resume();
    throw new AppError('tooLarge');
  }
  const body = chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks);
  const decode = decoders.get(encoding.toLowerCase());
  if (decode === undefined) return body;
  return decode(body, { maxOutputLength: limit_bytes }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ERR_BUFFER_TOO_LARGE') throw new AppError('tooLarge');
    return Buffer.alloc(0);
  });
}

/**
 * A body as JSON, whatever its Content-Type says (contract 4).
 * @returns undefined for what the service does not take: no JSON, not UTF-8, nested deeper than 32
 */
export function parseJson(body: Buffer): unknown {
  if (!isUtf8(body) || tooDeep(body, 32)) return undefined;
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

const [quote, backslash, bracket, brace, closeBracket, closeBrace] = Buffer.from('"\\[{]}') as unknown as number[];

/** Counted on the bytes: a parser that recurses would be the victim of what it is to find. */
function tooDeep(body: Buffer, limit: number): boolean {
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (quoted) {
      if (byte === backslash) at++;
      else if (byte === quote) quoted = false;
    } else if (byte === quote) quoted = true;
    else if (byte === brace || byte === bracket) {
      if (++depth > limit) return true;
    } else if (byte === closeBrace || byte === closeBracket) depth--;
  }
  return false;
}
