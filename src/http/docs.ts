import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import type { RequestHandler, Response } from 'express';
import helmet from 'helmet';
import type { PublicRoute } from './public-routes.js';

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Device platform management interface</title>
<link rel="stylesheet" href="swagger-ui.css">
<link rel="icon" href="favicon-32x32.png">
</head>
<body>
<div id="reference"></div>
<script src="swagger-ui-bundle.js"></script>
<script src="start.js"></script>
</body>
</html>
`;

/** Turns off the validator badge, which would be an external request. */
const start = `SwaggerUIBundle({
  url: '../openapi.json',
  dom_id: '#reference',
  validatorUrl: null,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
});
`;

const assets = ['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'];

/** Allows nothing from other origins. Swagger UI needs style attributes and data URLs. */
function strictCsp(): RequestHandler {
  return helmet({
    hsts: false,
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'", "'unsafe-inline'"],
        imgSrc: ["'self'", 'data:'],
        connectSrc: ["'self'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        frameAncestors: ["'none'"],
      },
    },
  });
}

/** Serves `/openapi.json` and `/docs/` (reference/configuration.md#api-description). */
export function docsRoutes(document: object): PublicRoute[] {
  const library = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
  const indexPage = staticResponse('text/html', page);
  const files: PublicRoute[] = assets.map((asset) => [
    `/docs/${asset}`,
    (_request, response) => response.sendFile(asset, { root: library, maxAge: '1h' }),
  ]);
  const pages: PublicRoute[] = [
    ...files,
    ['/docs/start.js', staticResponse('text/javascript', start)],
    [
      '/docs',
      (request, response, next) => {
        // the page loads its files by relative URLs
        if (request.path.endsWith('/')) indexPage(request, response, next);
        else response.redirect('docs/');
      },
    ],
  ];
  const csp = strictCsp();
  const withCsp =
    (handler: RequestHandler): RequestHandler =>
    (request, response, next) =>
      csp(request, response, (error?: unknown) =>
        error === undefined ? handler(request, response, next) : next(error),
      );
  return [
    ['/openapi.json', staticResponse('application/json', JSON.stringify(document))],
    ...pages.map(([path, handler]): PublicRoute => [path, withCsp(handler)]),
  ];
}

/** Serves a constant text with an `ETag`. */
function staticResponse(type: string, text: string): RequestHandler {
  const body = Buffer.from(text);
  const tag = `"${createHash('sha1').update(body).digest('base64url')}"`;
  return (_request, response: Response) => {
    response.set({ 'Content-Type': `${type}; charset=utf-8`, 'Cache-Control': 'no-cache', ETag: tag }).send(body);
  };
}
