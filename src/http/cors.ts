import type { RequestHandler } from 'express';

const exposed = 'ETag, Location, Retry-After, X-Request-Id';

/** Allows web pages of `origins`, or of all with `*` (reference/requests.md#cors). */
export function corsMiddleware(origins: readonly string[], keyHeaders: readonly string[]): RequestHandler {
  const all = origins.includes('*');
  const allowedHeaders = [
    ...new Set([...keyHeaders, 'Authorization']),
    'Accept',
    'Content-Type',
    'If-Match',
    'If-None-Match',
  ].join(', ');
  return (request, response, next) => {
    if (origins.length > 0) response.vary('Origin');
    const { origin } = request.headers;
    if (origin !== undefined && (all || origins.includes(origin))) {
      response.setHeader('Access-Control-Allow-Origin', origin);
      response.setHeader('Access-Control-Expose-Headers', exposed);
      if (request.method === 'OPTIONS') {
        response.setHeader('Access-Control-Allow-Methods', 'GET, HEAD, POST, PUT, DELETE');
        response.setHeader('Access-Control-Allow-Headers', allowedHeaders);
        response.setHeader('Access-Control-Max-Age', '600');
      }
    }
    next();
  };
}
