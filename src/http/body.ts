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

/** Reads and decompresses a body of at most `limit_bytes`. @throws AppError tooLarge (4131) */
export async function readBody(request: IncomingMessage, limit_bytes: number): Promise<Buffer> {
  const { 'content-length': announced, 'content-encoding': encoding = 'identity' } = request.headers;
  if (Number(announced) > limit_bytes) throw new AppError('tooLarge');
  const body = await received(request, limit_bytes);
  const decode = decoders.get(encoding.toLowerCase());
  if (decode === undefined) return body;
  return decode(body, { maxOutputLength: limit_bytes }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ERR_BUFFER_TOO_LARGE') throw new AppError('tooLarge');
    return Buffer.alloc(0);
  });
}

/** Drains an oversized body, so that the 413 can be sent on this connection. */
function received(request: IncomingMessage, limit_bytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    request.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size <= limit_bytes) chunks.push(chunk);
      else {
        chunks.length = 0;
        reject(new AppError('tooLarge'));
      }
    });
    request.once('end', () =>
      resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)),
    );
    request.once('error', reject);
  });
}
