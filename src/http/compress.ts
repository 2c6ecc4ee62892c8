import compression from 'compression';
import type { RequestHandler, Response } from 'express';

/** Shorter answers are sent as they are (reference/requests.md#compression). */
export const min_compressed_bytes = 1025;
/** Types of answers that are text; live feeds are not compressed, as a compressor would hold events back. */
const compressibleType = /^(?:application\/(?:json|xml|x-ndjson)|text\/(?!event-stream))/;

const namesEncoding = /\b(?:br|gzip|deflate)\b|\*/;

/** Downloads are sent byte for byte: they have ranges, and entity tags of their bytes. */
function isCompressible(response: Response): boolean {
  const isDownload = response.hasHeader('Content-Disposition') || response.hasHeader('Content-Range');
  return !isDownload && compressibleType.test(String(response.getHeader('Content-Type') ?? ''));
}

/** Leaves the length out of an answer to HEAD if GET would be compressed, to another length (RFC 9110 §8.6). */
function removeLength(response: Response): void {
  if (Number(response.getHeader('Content-Length')) >= min_compressed_bytes) response.removeHeader('Content-Length');
}

/** Compresses answers as `Accept-Encoding` asks, by preference with Brotli. */
export function compressAnswers(): RequestHandler {
  const compress = compression({
    threshold: min_compressed_bytes,
    filter: (request, response) => {
      if (!isCompressible(response as Response)) return false;
      if (request.method === 'HEAD' && namesEncoding.test(String(request.headers['accept-encoding'])))
        removeLength(response as Response);
      return true;
    },
  });
  return (request, response, next) => {
    // the middleware replaces methods of each response, which costs more than a short request takes
    if (request.headers['accept-encoding'] === undefined) next();
    else compress(request, response, next);
  };
}
