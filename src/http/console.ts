import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { Request, RequestHandler, Response } from 'express';
import { AppError } from '../errors.js';
import { chain } from './chain.js';
import { type Compressed, sendCompressed } from './encoded-body.js';
import { isHtmlPreferred } from './negotiate.js';
import { allowGetOnly } from './public-routes.js';
import { createStrictCsp } from './security-headers.js';

export interface ConsoleOptions {
  /** The built console: `index.html` and `files/`. */
  dir: string;
  public_url: string;
  /** Template of map tiles on another server. */
  tiles_url: string | undefined;
  /** Ports of the broker, without and with TLS; undefined: there is none. */
  mqtt_port: number | undefined;
  mqtts_port: number | undefined;
  /** The issuer at which users can sign in; with it, client and claim are set. */
  oidc: Readonly<Record<'issuer' | 'client_id' | 'scope' | 'claim', string | undefined>>;
}

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
 */
export function serveConsole(options: ConsoleOptions): RequestHandler {
  const prefix = new URL(options.public_url).pathname.replace(/\/$/, '');
  const assets = readAssets(join(options.dir, 'files'));
  const page: Asset = { type: 'html', body: Buffer.from(buildPage(options, prefix)), compressed: {} };
  const originOf = (url: string | undefined) => (url === undefined ? [] : [new URL(url).origin]);
  const csp = createStrictCsp({ images: originOf(options.tiles_url), connections: originOf(options.oidc.issuer) });
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
function buildPage({ dir, tiles_url = '', mqtt_port, mqtts_port, oidc }: ConsoleOptions, prefix: string): string {
  const file = join(dir, 'index.html');
  if (!existsSync(file)) return startPage(prefix);
  const settings = {
    prefix,
    tiles: tiles_url,
    'mqtt-port': String(mqtt_port ?? ''),
    'mqtts-port': String(mqtts_port ?? ''),
    'oidc-issuer': oidc.issuer ?? '',
    'oidc-client-id': oidc.client_id ?? '',
    'oidc-scope': oidc.scope ?? '',
    'oidc-claim': oidc.claim ?? '',
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
