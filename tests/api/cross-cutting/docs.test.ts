import { readFileSync } from 'node:fs';
import { runInNewContext } from 'node:vm';
import { afterAll, expect, it } from '@jest/globals';
import { startTestService } from '../../support/service.js';

const service = await startTestService({ base_path: '/api', api_key_headers: ['service.apikey', 'x-key'] });
const anonymous = service.clientWith(undefined);
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
  const loaded = [...page.text.matchAll(/<(?:link|script)[^>]* (?:src|href)="([^"]+)"/g)].map(([, path]) => path);
  expect(loaded).toEqual(['swagger-ui.css', 'favicon-32x32.png', 'swagger-ui-bundle.js', 'start.js']);
  for (const path of loaded) {
    const asset = await anonymous.get(`/docs/${path}`, { 'Accept-Encoding': 'identity' });
    expect([path, asset.status]).toEqual([path, 200]);
    expect(Number(asset.headers['content-length'])).toBeGreaterThan(100);
  }
  expect((await anonymous.get('/docs/start.js')).text).toContain('validatorUrl: null');
});

/** Runs the script of the page with these values of `sessionStorage`. @returns the configuration of Swagger UI */
async function startPage(stored: Map<string, string>, { theme = '', isDarkPreferred = false } = {}) {
  const { text } = await anonymous.get('/docs/start.js');
  const preauthorized: string[][] = [];
  const classes: string[] = [];
  const created: { name: string; textContent?: string }[] = [];
  const createElement = (name: string) => {
    const element = { name, addEventListener: () => undefined, append: () => undefined };
    created.push(element);
    return element;
  };
  // biome-ignore lint/suspicious/noExplicitAny: the configuration has parts of many types
  let config: any;
  const page = {
    sessionStorage: {
      getItem: (item: string) => stored.get(item) ?? null,
      setItem: (item: string, value: string) => stored.set(item, value),
      removeItem: (item: string) => stored.delete(item),
    },
    localStorage: { getItem: (item: string) => (item === 'device-platform.theme' && theme ? theme : null) },
    fetch: async () => ({ ok: true }),
    URL,
    location: { href: 'http://platform.test/docs/' },
    matchMedia: () => ({ matches: isDarkPreferred, addEventListener: () => undefined }),
    document: {
      querySelector: () => ({}),
      getElementById: createElement,
      createElement,
      documentElement: { classList: { toggle: (name: string, isOn: boolean) => isOn && classes.push(name) } },
    },
    SwaggerUIBundle(given: object) {
      config = given;
      const described = new Map([
        ['servers.0.url', '/api'],
        ['components.securitySchemes.apikey.name', 'x-key'],
      ]);
      const getIn = (path: (string | number)[]) => described.get(path.join('.'));
      const specSelectors = { specJson: () => ({ getIn }) };
      return { specSelectors, preauthorizeApiKey: (...args: string[]) => preauthorized.push(args) };
    },
  };
  runInNewContext(text, page);
  config.onComplete();
  const React = { createElement: (...element: unknown[]) => element };
  const plugins = config.plugins.map((plugin: (system: object) => object) => plugin({ React }));
  const commands = created.filter(({ name }) => name === 'code').map(({ textContent }) => textContent);
  return { config, preauthorized, classes, commands, ...Object.assign({}, ...plugins) };
}

it('keeps the key for the tab only', async () => {
  const stored = new Map<string, string>();
  const { config, preauthorized, statePlugins } = await startPage(stored);
  const { authorize, logout } = statePlugins.auth.wrapActions;
  expect(authorize((given: object) => given)({ apikey: { value: 'K' } })).toEqual({ apikey: { value: 'K' } });
  expect([...stored]).toEqual([['apikey', 'K']]);
  expect([preauthorized, (await startPage(stored)).preauthorized]).toEqual([[], [['apikey', 'K']]]);
  expect(logout((names: string[]) => names)(['apikey'])).toEqual(['apikey']);
  expect(stored.size).toBe(0);
  // Swagger UI itself would write to localStorage
  expect(config).not.toHaveProperty('persistAuthorization');
  expect((await anonymous.get('/docs/start.js')).text).not.toContain('localStorage.setItem');
});

it('takes the key and the theme of the console, and begins with the operations', async () => {
  const { preauthorized, commands } = await startPage(new Map([['device-platform.apikey', 'C']]));
  expect(preauthorized).toEqual([['apikey', 'C']]);
  expect(commands).toEqual(
    [
      'self/',
      'devices/?max=3',
      'devices/?max=3&fields=id_developer,latest',
      'devices/counts/?by=status',
      'events/?max=3',
    ].map((path) => `curl -H "x-key: $KEY" "http://platform.test/api/${path}"`),
  );
  const choices: [theme: string, isDarkPreferred: boolean, classes: string[]][] = [
    ['', false, []],
    ['', true, ['dark-mode']],
    ['dark', false, ['dark-mode']],
    ['light', true, []],
  ];
  for (const [theme, isDarkPreferred, classes] of choices)
    expect((await startPage(new Map(), { theme, isDarkPreferred })).classes).toEqual(classes);
  const { wrapComponents } = await startPage(new Map());
  const [element, , summary] = wrapComponents.InfoContainer('prose')({});
  expect([element, summary]).toEqual(['details', ['summary', null, 'About this interface']]);
});

it('filters operations by method, path, operationId and summary, or all of a tag', async () => {
  const { config, fn } = await startPage(new Map());
  expect(config.filter).toBe(true);
  class Operations extends Array<Record<string, unknown>> {
    get size() {
      return this.length;
    }
  }
  const operation = (method: string, path: string, details: Record<string, string>) => ({
    get: (key: string) => ({ method, path })[key],
    getIn: ([, key = '']: string[]) => details[key],
    id: details.operationId,
  });
  // the methods of Immutable that the filter uses
  const section = (operations: Operations) => ({
    get: () => operations,
    update: (_key: string, change: (all: Operations) => Operations) => section(change(operations)),
  });
  const sections = (entries: [string, ReturnType<typeof section>][]) => ({
    entries,
    map: (change: (one: ReturnType<typeof section>, name: string) => ReturnType<typeof section>) =>
      sections(entries.map(([name, one]) => [name, change(one, name)])),
    filter: (isWanted: (one: ReturnType<typeof section>) => boolean) =>
      sections(entries.filter(([, one]) => isWanted(one))),
  });
  const devices = new Operations(
    operation('get', '/devices/', { operationId: 'listDevices', summary: 'List devices' }),
    operation('put', '/devices/{id}/', { operationId: 'updateDevice', summary: 'Change a device' }),
  );
  const mqtt = new Operations(operation('post', '/x/', { operationId: 'createTopic', summary: 'Grant' }));
  const all = sections([
    ['devices', section(devices)],
    ['mqtt', section(mqtt)],
  ]);
  const idsFor = (phrase: string) =>
    fn
      .opsFilter(all, phrase)
      .entries.flatMap(([, one]: [string, ReturnType<typeof section>]) => one.get().map((of) => of.id));
  expect(idsFor('UPDATEdev')).toEqual(['updateDevice']);
  expect(idsFor('change a')).toEqual(['updateDevice']);
  expect(idsFor('/x/')).toEqual(['createTopic']);
  expect(idsFor('put')).toEqual(['updateDevice']);
  expect(idsFor('mqtt')).toEqual(['createTopic']);
  expect(idsFor('nothing')).toEqual([]);
});

it('describes how devices use MQTT', async () => {
  const { description } = (await anonymous.get('/openapi.json')).body.info;
  const section = /^## MQTT$(.*?)(?=^## |$(?![\s\S]))/ms.exec(description)?.[1] ?? '';
  for (const word of ['{id}/streams', '{id}/status', '/mqtt', 'mosquitto_pub', 'QoS 1', 'mqtt_dropped_total'])
    expect(section).toContain(word);
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
