import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { Request, RequestHandler, Response } from 'express';
import type { Config } from '../config.js';
import { AppError } from '../errors.js';
import { chain } from './chain.js';
import { type Compressed, sendCompressed } from './encoded-body.js';
import { isHtmlPreferred } from './negotiate.js';
import { allowGetOnly } from './public-routes.js';
import { createStrictCsp } from './security-headers.js';

interface Asset {
  /** As the name of a file ends. */
  type: string;
  body: Buffer;
  /** The forms that the build has put beside it. */
  compressed: Compressed;
}

const mount = '/console';

/**
 * Serves the web console below `/console/`, and at `/` to browsers (reference/configuration.md#console). Without a built
 * console, as after `tsc` alone, browsers get a page that links to `/docs/`.
 * @param dir has `index.html` and `files/`
 */
export function serveConsole(dir: string, config: Config): RequestHandler {
  const prefix = new URL(config.public_url).pathname.replace(/\/$/, '');
  const assets = readAssets(join(dir, 'files'));
  const page: Asset = { type: 'html', body: Buffer.from(buildPage(dir, config, prefix)), compressed: {} };
  const originOf = (url: string | undefined) => (url === undefined ? [] : [new URL(url).origin]);
  const sources = { images: originOf(config.console_tiles_url), connections: originOf(config.oidc_issuer) };
  const csp = createStrictCsp(sources);
  const sendPage = chain(csp, (request, response) => send(request, response, page, 'no-cache'));
  return (request, response, next) => {
    const { path } = request;
    if (path === '/') {
      if (!/^(?:GET|HEAD)$/.test(request.method) || !isHtmlPreferred(request.headers.accept)) return next();
      response.vary('Accept');
      sendPage(request, response, next);
    } else if (path === mount) {
      allowGetOnly(request, response, () => response.redirect('console/'));
    } else if (path.startsWith(`${mount}/`)) {
      allowGetOnly(request, response, () => {
        const name = path.slice(`${mount}/files/`.length);
        if (!path.startsWith(`${mount}/files/`)) return sendPage(request, response, next);
        const asset = assets.get(name);
        if (asset === undefined) throw new AppError('notFound');
        // the name holds a hash of the content
        send(request, response, asset, 'public, max-age=31536000, immutable');
      });
    } else next();
  };
}

/** Reads all files into memory: one that is sent to a client that does not read would hold a descriptor. */
function readAssets(dir: string): ReadonlyMap<string, Asset> {
  const names = existsSync(dir) ? readdirSync(dir) : [];
  const files = new Map(names.map((name) => [name, readFileSync(join(dir, name))]));
  return new Map(
    [...files].map(([name, body]) => {
      const [br, gzip] = [files.get(`${name}.br`), files.get(`${name}.gz`)];
      return [name, { type: extname(name), body, compressed: { ...(br && { br }), ...(gzip && { gzip }) } }];
    }),
  );
}

/** The page with the address of its files and its settings, or the start page where no console was built. */
function buildPage(dir: string, config: Config, prefix: string): string {
  const file = join(dir, 'index.html');
  if (!existsSync(file)) return startPage(prefix);
  const settings = {
    prefix,
    tiles: config.console_tiles_url ?? '',
    'mqtt-port': String(config.mqtt_port ?? ''),
    'mqtts-port': String(config.mqtts_port ?? ''),
    'oidc-issuer': config.oidc_issuer ?? '',
    'oidc-client-id': config.oidc_client_id ?? '',
    'oidc-scope': config.oidc_scope ?? '',
    'oidc-claim': config.oidc_claim ?? '',
  };
  return Object.entries(settings).reduce(
    (filled, [name, value]) =>
      filled.replace(`<meta name="${name}" content="">`, `<meta name="${name}" content="${escapeAttribute(value)}">`),
    readFileSync(file, 'utf8').replaceAll('"./files/', `"${prefix}${mount}/files/`),
  );
}

function escapeAttribute(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');
}

const startPage = (prefix: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Device platform</title>
</head>
<body>
<h1>Device platform</h1>
<p><a href="${escapeAttribute(prefix)}/docs/">Description of the interface</a></p>
</body>
</html>
`;

function send(request: Request, response: Response, { type, body, compressed }: Asset, cacheControl: string): void {
  response.type(type).set('Cache-Control', cacheControl);
  sendCompressed(request, response, body, compressed);
}
