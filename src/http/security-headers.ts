import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { RequestHandler } from 'express';
import helmet from 'helmet';

/** Allows nothing from other origins and no inline script, except these further sources. */
export function createStrictCsp({
  styles = [],
  images = [],
  connections = [],
}: {
  styles?: readonly string[];
  images?: readonly string[];
  connections?: readonly string[];
}) {
  return helmet({
    hsts: false,
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'", ...styles],
        imgSrc: ["'self'", 'data:', ...images],
        connectSrc: ["'self'", ...connections],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        frameAncestors: ["'none'"],
      },
    },
  });
}

/** Sends helmet's headers, computed once. Requires https only if `public_url` is https. */
export function securityHeaders(public_url: string): RequestHandler {
  const protect = public_url.startsWith('https:')
    ? helmet()
    : helmet({ hsts: false, contentSecurityPolicy: { directives: { upgradeInsecureRequests: null } } });
  const headers: [name: string, value: string][] = [];
  const request = new IncomingMessage(new Socket());
  const sample = new ServerResponse(request);
  sample.setHeader = (name, value) => {
    headers.push([name, String(value)]);
    return sample;
  };
  protect(request, sample, () => undefined);
  return (_request, response, next) => {
    for (const [name, value] of headers) response.setHeader(name, value);
    next();
  };
}
