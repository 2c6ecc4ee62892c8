import type { RequestHandler } from 'express';
import { localsOf } from './context.js';

const exposed = 'ETag, Location, Retry-After, X-Request-Id';

/** Names of headers, separated by commas (RFC 9110 §5.6.2). */
const headerNames = /^[\w!#$%&'*+.^`|~, -]{1,1000}$/;

/** Creates the handlers that let web pages of `origins`, or of all with `*`, call the interface (reference/requests.md#cors). */
export function createCors(origins: readonly string[], keyHeaders: readonly string[]) {
  const all = origins.includes('*');
  const requestHeaders = ['Accept', 'Content-Type', 'If-Match', 'If-None-Match', 'Last-Event-ID'];
  const allowedHeaders = [...new Set([...keyHeaders, 'Authorization']), ...requestHeaders].join(', ');
  const isAllowed = (origin: string | undefined) => origin !== undefined && (all || origins.includes(origin));
  /** Lets pages read the answers to all requests but preflights. */
  const share: RequestHandler = (request, response, next) => {
    if (origins.length > 0) response.vary('Origin');
    const { origin } = request.headers;
    if (isAllowed(origin)) {
      response.setHeader('Access-Control-Allow-Origin', String(origin));
      response.setHeader('Access-Control-Expose-Headers', exposed);
    }
    next();
  };
  /** Recognizes preflights; `Locals.isPreflight` says that they are answered with 204 whatever the path. */
  const preflight: RequestHandler = (request, response, next) => {
    if (request.method !== 'OPTIONS' || !isAllowed(request.headers.origin)) {
      next();
      return;
    }
    localsOf(response).isPreflight = true;
    response.setHeader('Access-Control-Allow-Methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
    const { 'access-control-request-headers': asked } = request.headers;
    // programs of the former platform send headers of their own
    response.setHeader(
      'Access-Control-Allow-Headers',
      asked !== undefined && headerNames.test(asked) ? asked : allowedHeaders,
    );
    response.vary('Access-Control-Request-Headers');
    response.setHeader('Access-Control-Max-Age', '600');
    share(request, response, next);
  };
  return { preflight, share };
}
