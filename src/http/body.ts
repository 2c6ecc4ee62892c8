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

/** Stands for a body that cannot be decompressed: not UTF-8, so that it is refused also where no body is needed. */
const undecodable = Buffer.from([0xff]);

interface Limits {
  limit_bytes: number;
  /** Reserves memory for bytes before they are kept. @throws AppError overloaded (5033) */
  reserve?(bytes: number): void;
}

/** Reads and decompresses a body. @throws AppError tooLarge (4131) past `limit_bytes`, overloaded (5033) */
export async function readBody(request: IncomingMessage, { limit_bytes, reserve }: Limits): Promise<Buffer> {
  const { 'content-length': announced, 'content-encoding': encoding = 'identity' } = request.headers;
  if (Number(announced) > limit_bytes) throw new AppError('tooLarge');
  const body = await receive(request, limit_bytes, reserve);
  const decode = decoders.get(encoding.toLowerCase());
  if (decode === undefined) return body;
  const decoded = await decode(body, { maxOutputLength: limit_bytes }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ERR_BUFFER_TOO_LARGE') throw new AppError('tooLarge');
    return undecodable;
  });
  reserve?.(decoded.length);
  return decoded;
}

/** Drains what exceeds a limit, so that the answer can be sent on this connection. */
function receive(request: IncomingMessage, limit_bytes: number, reserve: Limits['reserve']): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let chunks: Buffer[] | undefined = [];
    let size = 0;
    const fail = (error: unknown) => {
      chunks = undefined;
      reject(error);
    };
    request.on('data', (chunk: Buffer) => {
      if (chunks === undefined) return;
      size += chunk.length;
      if (size > limit_bytes) {
        fail(new AppError('tooLarge'));
        return;
      }
      try {
        reserve?.(chunk.length);
        chunks.push(chunk);
      } catch (error) {
        fail(error);
      }
    });
    request.once('end', () => {
      const [first] = chunks ?? [];
      resolve(chunks?.length === 1 && first !== undefined ? first : Buffer.concat(chunks ?? []));
    });
    // each body ends with `close`, and an Error costs as much as parsing a short one
    request.once('close', () => {
      if (!request.readableEnded) reject(new Error('the client has closed the connection'));
    });
    request.once('error', reject);
  });
}
