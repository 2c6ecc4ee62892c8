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
