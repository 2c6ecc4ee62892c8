import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type Api, startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let anyone: Api;

beforeAll(async () => {
  service = await startTestService({ base_path: '/api', api_key_headers: ['service.apikey', 'x-key'] });
  anyone = service.clientWith(undefined);
});
afterAll(() => service.stop());

it('serves the document without a key, at the root, with and without a closing slash', async () => {
  const reply = await anyone.get('/openapi.json');
  expect(reply.status).toBe(200);
  expect(reply.headers['content-type']).toBe('application/json; charset=utf-8');
  expect(reply.body.openapi).toBe('3.1.0');
  expect(reply.body.servers[0].url).toBe(`${service.url}/api`);
  expect((await anyone.get('/openapi.json/')).text).toBe(reply.text);
  expect((await anyone.send('HEAD', '/openapi.json')).status).toBe(200);
});

it('has the version of the package', async () => {
  const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));
  expect((await anyone.get('/openapi.json')).body.info.version).toBe(version);
});

it('tells every operation that is served, and no other', async () => {
  const { paths } = (await anyone.get('/openapi.json')).body as {
    paths: Record<string, Record<string, { security?: unknown }>>;
  };
  const told = Object.entries(paths)
    .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method} ${path}`))
    .filter((operation) => !operation.startsWith('servers '));
  const served = service.operations.map(({ method, path }) => `${method} ${path}`);
  const root = ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs/'].map((path) => `get ${path}`);
  expect(told.sort()).toEqual([...served, ...root].sort());
});

it('tells the client whose copy is still right', async () => {
  const { headers } = await anyone.get('/openapi.json');
  expect(headers['cache-control']).toBe('no-cache');
  expect(headers.etag).toMatch(/^"[\w-]+"$/);
  const again = await anyone.get('/openapi.json', { 'If-None-Match': headers.etag ?? '' });
  expect([again.status, again.text]).toEqual([304, '']);
});

it('answers other methods with 405, and OPTIONS with those there are', async () => {
  const reply = await anyone.post('/openapi.json', {});
  expect([reply.status, reply.body.code, reply.headers.allow]).toEqual([405, 4051, 'GET, HEAD, OPTIONS']);
  const options = await anyone.send('OPTIONS', '/docs/');
  expect([options.status, options.headers.allow]).toEqual([204, 'GET, HEAD, OPTIONS']);
});

it('serves a page that loads only what the service has', async () => {
  const page = await anyone.get('/docs/');
  expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
  expect(page.text).not.toMatch(/https?:|<script>|\son\w+=/);
  const loaded = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path);
  expect(loaded).toEqual(['swagger-ui.css', 'favicon-32x32.png', 'swagger-ui-bundle.js', 'start.js']);
  for (const path of loaded) {
    const asset = await anyone.get(`/docs/${path}`);
    expect([path, asset.status]).toEqual([path, 200]);
    expect(Number(asset.headers['content-length'])).toBeGreaterThan(100);
  }
  expect((await anyone.get('/docs/start.js')).text).toContain('validatorUrl: null');
});

it('lets the page ask nobody else', async () => {
  const { headers } = await anyone.get('/docs/');
  const policy = Object.fromEntries(
    (headers['content-security-policy'] ?? '').split(';').map((part) => part.trim().split(/ (.*)/s)),
  );
  expect(policy['default-src']).toBe("'none'");
  expect(policy['script-src']).toBe("'self'");
  expect(policy['connect-src']).toBe("'self'");
  expect(headers['content-security-policy']).not.toMatch(/https?:|\*|unsafe-eval/);
});

it('leads from /docs to /docs/, wherever that is mounted', async () => {
  const reply = await anyone.get('/docs');
  expect([reply.status, reply.headers.location]).toEqual([302, 'docs/']);
});

it('gives away no other file of the library', async () => {
  for (const path of ['/docs/package.json', '/docs/%2e%2e/package.json', '/docs/..%2fpackage.json', '/docs/index.js']) {
    expect([path, (await anyone.get(path)).status]).toEqual([path, 404]);
  }
});
