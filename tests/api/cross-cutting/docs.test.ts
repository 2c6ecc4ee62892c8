import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type Api, startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let anonymous: Api;

beforeAll(async () => {
  service = await startTestService({ base_path: '/api', api_key_headers: ['service.apikey', 'x-key'] });
  anonymous = service.clientWith(undefined);
});
afterAll(() => service.stop());

it('serves the document without a key, at the root, with and without a closing slash', async () => {
  const reply = await anonymous.get('/openapi.json');
  expect(reply.status).toBe(200);
  expect(reply.headers['content-type']).toBe('application/json; charset=utf-8');
  expect(reply.body.openapi).toBe('3.1.0');
  expect(reply.body.servers[0].url).toBe(`${service.url}/api`);
  expect((await anonymous.get('/openapi.json/')).text).toBe(reply.text);
  expect((await anonymous.send('HEAD', '/openapi.json')).status).toBe(200);
});

it('states the version of the package', async () => {
  const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));
  expect((await anonymous.get('/openapi.json')).body.info.version).toBe(version);
});

it('documents every served operation, and no other', async () => {
  const { paths } = (await anonymous.get('/openapi.json')).body as {
    paths: Record<string, Record<string, { security?: unknown }>>;
  };
  const documented = Object.entries(paths)
    .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method} ${path}`))
    .filter((operation) => !operation.startsWith('servers '));
  const served = service.operations.map(({ method, path }) => `${method} ${path}`);
  const rootPaths = ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs/'].map((path) => `get ${path}`);
  expect(documented.sort()).toEqual([...served, ...rootPaths].sort());
});

it('answers 304 if the copy of the client is current', async () => {
  const { headers } = await anonymous.get('/openapi.json');
  expect(headers['cache-control']).toBe('no-cache');
  expect(headers.etag).toMatch(/^"[\w-]+"$/);
  const again = await anonymous.get('/openapi.json', { 'If-None-Match': headers.etag ?? '' });
  expect([again.status, again.text]).toEqual([304, '']);
});

it('answers 405 to other methods, and OPTIONS with the allowed ones', async () => {
  const reply = await anonymous.post('/openapi.json', {});
  expect([reply.status, reply.body.code, reply.headers.allow]).toEqual([405, 4051, 'GET, HEAD, OPTIONS']);
  const options = await anonymous.send('OPTIONS', '/docs/');
  expect([options.status, options.headers.allow]).toEqual([204, 'GET, HEAD, OPTIONS']);
});

it('serves a page that loads only files of the service', async () => {
  const page = await anonymous.get('/docs/');
  expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
  expect(page.text).not.toMatch(/https?:|<script>|\son\w+=/);
  const loaded = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path);
  expect(loaded).toEqual(['swagger-ui.css', 'favicon-32x32.png', 'swagger-ui-bundle.js', 'start.js']);
  for (const path of loaded) {
    const asset = await anonymous.get(`/docs/${path}`);
    expect([path, asset.status]).toEqual([path, 200]);
    expect(Number(asset.headers['content-length'])).toBeGreaterThan(100);
  }
  expect((await anonymous.get('/docs/start.js')).text).toContain('validatorUrl: null');
});

it('restricts the page to its own origin', async () => {
  const { headers } = await anonymous.get('/docs/');
  const policy = Object.fromEntries(
    (headers['content-security-policy'] ?? '').split(';').map((part) => part.trim().split(/ (.*)/s)),
  );
  expect(policy['default-src']).toBe("'none'");
  expect(policy['script-src']).toBe("'self'");
  expect(policy['connect-src']).toBe("'self'");
  expect(headers['content-security-policy']).not.toMatch(/https?:|\*|unsafe-eval/);
});

it('redirects /docs to /docs/ with a relative Location', async () => {
  const reply = await anonymous.get('/docs');
  expect([reply.status, reply.headers.location]).toEqual([302, 'docs/']);
});

it('serves no other file of the library', async () => {
  for (const path of ['/docs/package.json', '/docs/%2e%2e/package.json', '/docs/..%2fpackage.json', '/docs/index.js']) {
    expect([path, (await anonymous.get(path)).status]).toEqual([path, 404]);
  }
});
