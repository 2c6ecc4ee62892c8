import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { formatConsoleTypes } from '../../scripts/console-types.js';
import { readConfig } from '../../src/config.js';
import { type Api, startTestService, type TestService } from '../support/service.js';

const page =
  '<meta name="prefix" content=""><meta name="tiles" content=""><meta name="mqtt-port" content=""><meta name="mqtts-port" content=""><meta name="oidc-issuer" content=""><meta name="oidc-client-id" content=""><meta name="oidc-scope" content=""><meta name="oidc-claim" content=""><script src="./files/main-1.js"></script><p id="root"></p>';
const browser = { Accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };
const csp = (images: string, connections = "'self'") =>
  `default-src 'none';script-src 'self';style-src 'self';img-src ${images};connect-src ${connections};base-uri 'none';form-action 'none';frame-ancestors 'none'`;

const folder = mkdtempSync(join(tmpdir(), 'console-'));
mkdirSync(join(folder, 'files'));
writeFileSync(join(folder, 'index.html'), page);
writeFileSync(join(folder, 'files/main-1.js'), 'void 0;');
writeFileSync(join(folder, 'files/main-1.js.br'), brotliCompressSync('void 0;'));
writeFileSync(join(folder, 'files/main-1.js.gz'), gzipSync('void 0;'));
afterAll(() => rmSync(folder, { recursive: true }));

function useService(options: () => Parameters<typeof startTestService>[0]) {
  const ctx = {} as { service: TestService; anonymous: Api };
  beforeAll(async () => {
    ctx.service = await startTestService(options());
    ctx.anonymous = ctx.service.clientWith(undefined);
  });
  afterAll(() => ctx.service.stop());
  return ctx;
}

describe('the built console', () => {
  const ctx = useService(() => ({ console_dir: folder }));

  it.each(['/', '/console/', '/console/devices/Pump%40demo', '/console/no/such/view'])(
    'is the page at %s',
    async (path) => {
      const reply = await ctx.anonymous.get(path, browser);
      expect(reply.status).toBe(200);
      expect(reply.text).toBe(
        page.replace('./files/', '/console/files/').replace('"oidc-scope" content=""', '"oidc-scope" content="openid"'),
      );
      expect(reply.headers).toMatchObject({
        'content-type': 'text/html; charset=utf-8',
        'cache-control': 'no-cache',
        'content-security-policy': csp("'self' data:"),
      });
    },
  );

  it('has files that are cached for a year', async () => {
    const reply = await ctx.anonymous.get('/console/files/main-1.js', { 'Accept-Encoding': 'gzip' });
    expect([reply.status, reply.text]).toEqual([200, 'void 0;']);
    expect(reply.headers).toMatchObject({
      'content-type': 'text/javascript; charset=utf-8',
      'content-encoding': 'gzip',
      'cache-control': 'public, max-age=31536000, immutable',
    });
    const encodings = [
      ['gzip, deflate, br, zstd', 'br'],
      ['br;q=0, gzip', 'gzip'],
      ['identity', undefined],
    ];
    for (const [accepted, coding] of encodings) {
      const answer = await ctx.anonymous.get('/console/files/main-1.js', { 'Accept-Encoding': accepted ?? '' });
      expect([answer.text, answer.headers['content-encoding']]).toEqual(['void 0;', coding]);
    }
  });

  it.each(['/console/files/', '/console/files/none.js', '/console/files/..%2findex.html'])(
    'has no file at %s',
    async (path) => {
      const { status, body } = await ctx.anonymous.get(path);
      expect([status, body.code]).toEqual([404, 4041]);
    },
  );

  it('redirects /console to /console/ with a relative Location', async () => {
    const { status, headers } = await ctx.anonymous.get('/console');
    expect([status, headers.location]).toEqual([302, 'console/']);
  });

  it('takes GET and HEAD only', async () => {
    const reply = await ctx.anonymous.post('/console/', {});
    expect([reply.status, reply.body.code, reply.headers.allow]).toEqual([405, 4051, 'GET, HEAD, OPTIONS']);
  });

  it.each([undefined, '*/*', 'application/json', 'application/json, text/html;q=0.9', 'text/html;q=0'])(
    'leaves / to clients with Accept: %s, which get what an unknown path answers',
    async (accept) => {
      const headers: Record<string, string> = accept === undefined ? {} : { Accept: accept };
      const unknown = await ctx.anonymous.get('/no-such-path', headers);
      const reply = await ctx.anonymous.get('/', headers);
      expect([reply.status, reply.text]).toEqual([unknown.status, unknown.text]);
      expect(reply.body.code).toBe(4011);
      expect(reply.headers.vary).toBe(unknown.headers.vary);
    },
  );

  it('leaves POST / to the interface', async () => {
    const { status, text } = await ctx.anonymous.post('/', undefined, browser);
    expect([status, text]).toEqual([401, expect.stringContaining('<code>4011</code>')]);
  });
});

it('the build compresses each file as it is', () => {
  const files = 'dist/src/console/files';
  const compressed = readdirSync(files).filter((name) => name.endsWith('.br'));
  expect(compressed).toContainEqual(expect.stringMatching(/^index-.*\.js\.br$/));
  for (const name of compressed) {
    const [brotli, gzip, content] = ['.br', '.gz', ''].map((end) =>
      readFileSync(join(files, name.replace(/\.br$/, end))),
    );
    expect(brotliDecompressSync(brotli ?? '').equals(content ?? Buffer.of())).toBe(true);
    expect(gunzipSync(gzip ?? '').equals(content ?? Buffer.of())).toBe(true);
  }
});

describe('with CONSOLE_TILES_URL', () => {
  const tiles = 'https://tiles.example.org/a&b/{z}/{x}/{y}.png';
  const ctx = useService(() => ({ console_dir: folder, console_tiles_url: tiles }));

  it('names the tiles in the page and allows images of their origin', async () => {
    const reply = await ctx.anonymous.get('/console/');
    expect(reply.text).toContain('<meta name="tiles" content="https://tiles.example.org/a&amp;b/{z}/{x}/{y}.png">');
    expect(reply.headers['content-security-policy']).toBe(csp("'self' data: https://tiles.example.org"));
  });
});

describe('with OIDC_ISSUER', () => {
  const oidc = { oidc_issuer: 'https://id.example.org/realms/a', oidc_client_id: 'a&b', oidc_claim: '/x' };
  const ctx = useService(() => ({ console_dir: folder, ...oidc, oidc_scope: 'openid profile' }));

  it('names issuer, client, scope and claim in the page, and allows requests to the origin of the issuer', async () => {
    const reply = await ctx.anonymous.get('/console/');
    expect(reply.text).toContain(
      '<meta name="oidc-issuer" content="https://id.example.org/realms/a"><meta name="oidc-client-id" content="a&amp;b"><meta name="oidc-scope" content="openid profile"><meta name="oidc-claim" content="/x">',
    );
    expect(reply.headers['content-security-policy']).toBe(csp("'self' data:", "'self' https://id.example.org"));
  });
});

describe.each([
  [1884, '1884'],
  [undefined, ''],
])('with MQTT at port %s', (mqtt_port, content) => {
  const ctx = useService(() => ({ console_dir: folder, ...(mqtt_port && { mqtt_port }) }));

  it('names it in the page, and no port of TLS', async () => {
    expect((await ctx.anonymous.get('/console/')).text).toContain(
      `<meta name="mqtt-port" content="${content}"><meta name="mqtts-port" content="">`,
    );
  });
});

describe('without a built console', () => {
  const ctx = useService(() => ({ console_dir: join(folder, 'none') }));

  it('is a page that links to /docs/', async () => {
    const reply = await ctx.anonymous.get('/', browser);
    expect(reply.status).toBe(200);
    expect(reply.text).toContain('<a href="/docs/">');
  });
});

describe('with CONSOLE=off', () => {
  const ctx = useService(() => ({}));

  it.each(['/', '/console', '/console/', '/console/files/main-1.js'])('%s is an unknown path', async (path) => {
    const { status, text } = await ctx.anonymous.get(path, browser);
    expect([status, text]).toEqual([401, expect.stringContaining('<code>4011</code>')]);
  });

  it('keeps /docs/', async () => {
    expect((await ctx.anonymous.get('/docs/', browser)).status).toBe(200);
  });
});

describe('api/interface.ts', () => {
  const ctx = useService(() => ({}));

  it('has the types of /openapi.json; else run dist/scripts/console-types.js', async () => {
    const { body } = await ctx.anonymous.get('/openapi.json');
    expect(readFileSync('src/console/api/interface.ts', 'utf8')).toBe(formatConsoleTypes(body.components.schemas));
  });
});

describe('CONSOLE_TILES_URL', () => {
  it('is an address with {z}, {x} and {y}', () => {
    const CONSOLE_TILES_URL = 'https://tiles.example.org/{z}/{x}/{y}.png';
    expect(readConfig({ CONSOLE_TILES_URL }).console_tiles_url).toBe(CONSOLE_TILES_URL);
  });

  it.each(['https://tiles.example.org/{z}/{x}.png', 'https://{s}.example.org/{z}/{x}/{y}.png', 'ftp://a/{z}/{x}/{y}'])(
    'is not %s',
    (CONSOLE_TILES_URL) => {
      expect(() => readConfig({ CONSOLE_TILES_URL })).toThrow('CONSOLE_TILES_URL must be an address such as');
    },
  );
});
