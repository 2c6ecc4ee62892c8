import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { type RequestHandler, type Response, Router } from 'express';
import helmet from 'helmet';
import { publicRoute } from './health.js';

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

/** Without a validator: it would be asked over the internet. */
const start = `SwaggerUIBundle({
  url: '../openapi.json',
  dom_id: '#reference',
  validatorUrl: null,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
});
`;

const assets = ['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'];

/** Nothing from anywhere else; the page's own library writes style attributes and holds its pictures as data. */
function onlyOurs(): RequestHandler {
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

/** `/openapi.json`, and `/docs/`, a page of it that works without the internet. Both stand at the root and need no key. */
export function docsRouter(document: object): Router {
  const router = Router({ caseSensitive: true });
  const library = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
  publicRoute(router, '/openapi.json', constant('application/json', JSON.stringify(document)));
  router.use('/docs', onlyOurs());
  publicRoute(router, '/docs/start.js', constant('text/javascript', start));
  for (const asset of assets) {
    publicRoute(router, `/docs/${asset}`, (_request, response) => {
      response.sendFile(asset, { root: library, maxAge: '1h' });
    });
  }
  const front = constant('text/html', page);
  publicRoute(router, '/docs', (request, response, next) => {
    // what the page loads is relative to it
    if (request.path.endsWith('/')) front(request, response, next);
    else response.redirect('docs/');
  });
  return router;
}

/** An answer that stays the same as long as the service runs; clients ask whether it still is. */
function constant(type: string, text: string): RequestHandler {
  const body = Buffer.from(text);
  const tag = `"${createHash('sha1').update(body).digest('base64url')}"`;
  return (_request, response: Response) => {
    response.set({ 'Content-Type': `${type}; charset=utf-8`, 'Cache-Control': 'no-cache', ETag: tag }).send(body);
  };
}
