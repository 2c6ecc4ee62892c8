import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { RequestHandler } from 'express';
import { awaitLater } from '../lib/promises.js';
import { chain } from './chain.js';
import { min_compressed_bytes } from './compress.js';
import { page, startScript } from './docs-page.js';
import { type Compressed, encodeBody, sendCompressed } from './encoded-body.js';
import type { PublicRoute } from './public-routes.js';
import { createStrictCsp } from './security-headers.js';

const assets = [
  ['swagger-ui.css', 'text/css'],
  ['swagger-ui-bundle.js', 'text/javascript'],
  ['favicon-32x32.png', 'image/png'],
] as const;

/**
 * Serves `/openapi.json` and `/docs/` (reference/configuration.md#api-description).
 * @param buildDocument called by the first request for the description
 */
export function docsRoutes(buildDocument: () => object): PublicRoute[] {
  const library = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
  const indexPage = staticResponse('text/html', () => page);
  // from memory: a file that is being sent to a client that does not read holds a descriptor
  const files: PublicRoute[] = assets.map(([asset, type]) => [
    `/docs/${asset}`,
    staticResponse(type, () => readFileSync(join(library, asset)), 'max-age=3600'),
  ]);
  const pages: PublicRoute[] = [
    ...files,
    ['/docs/start.js', staticResponse('text/javascript', () => startScript)],
    [
      '/docs',
      (request, response, next) => {
        // the page loads its files by relative URLs
        if (request.path.endsWith('/')) indexPage(request, response, next);
        else response.redirect('docs/');
      },
    ],
  ];
  // Swagger UI sets style attributes
  const csp = createStrictCsp({ styles: ["'unsafe-inline'"] });
  return [
    ['/openapi.json', staticResponse('application/json', () => JSON.stringify(buildDocument()))],
    ...pages.map(([path, handler]): PublicRoute => [path, chain(csp, handler)]),
  ];
}

/**
 * Serves a constant text with an `ETag`, compressed once: to do so for each request takes up to half a second.
 * @param read called once, by the first request
 */
function staticResponse(type: string, read: () => string | Buffer, cacheControl = 'no-cache'): RequestHandler {
  const isText = !type.startsWith('image/');
  const load = () => {
    const body = Buffer.from(read());
    const tag = `"${createHash('sha1').update(body).digest('base64url')}"`;
    const compressed: Promise<Compressed> =
      isText && body.length >= min_compressed_bytes ? awaitLater(encodeBody(body)) : Promise.resolve({});
    return { body, tag, compressed };
  };
  let loaded: ReturnType<typeof load> | undefined;
  return (request, response, next) => {
    loaded ??= load();
    const { body, tag, compressed } = loaded;
    response.set({ 'Content-Type': type, 'Cache-Control': cacheControl, ETag: tag });
    compressed.then((forms) => sendCompressed(request, response, body, forms)).catch(next);
  };
}
