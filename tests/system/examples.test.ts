import { execFile, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { transform } from '@swc/core';
import { type Instance, sendRequest, startInstance } from '../../scripts/support/instance.js';
import { findFreePort, startProcess, waitUntil } from '../../scripts/support/service-process.js';

/** Compiling and starting a program on a busy machine. */
const program_timeout_ms = 180_000;

let service: Instance;
let folder: string;
/** Key of scope `write` of the account `acme`. */
let key: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'examples-'));
  service = await startInstance({
    API_KEY_HEADERS: 'service.apikey,carriots.apikey',
    WEBHOOK_ALLOW_NETS: '127.0.0.0/8',
  });
  key = await service.issueKey('acme', 'write');
});
afterAll(async () => {
  await service?.close();
  await rm(folder, { recursive: true, force: true });
});

type Json = Record<string, unknown>;
interface List {
  total_documents: number;
  result: Json[];
}

/** Sends a request and returns the body of its success. */
async function call<T = Json>(method: string, path: string, body?: object, apiKey = key): Promise<T> {
  const reply = await sendRequest({ url: service.url, key: apiKey, method, path, body });
  if (reply.status >= 300) throw new Error(`${method} ${path}: ${reply.status} ${reply.text}`);
  return JSON.parse(reply.text) as T;
}

/** Creates `name` and what is above it, unless it exists; returns the identifier of its group. */
async function createGroup(name: string, apiKey = key): Promise<string> {
  await call('POST', '/projects/', { name, id_customer: 'example' }, apiKey);
  await call('POST', '/services/', { name, id_project: `${name}@acme` }, apiKey);
  await call('POST', '/groups/', { name, id_service: `${name}@acme` }, apiKey);
  return `${name}@acme`;
}

/** Runs a program with the address and the key in its environment and returns the lines that it prints. */
function run(command: string, args: string[], env: NodeJS.ProcessEnv = {}): Promise<string[]> {
  const { PATH, HOME } = process.env;
  const MQTT_URL = `mqtt://127.0.0.1:${service.mqttPort}`;
  const settings = { PATH, HOME, DEVICE_PLATFORM_URL: service.url, API_KEY: key, MQTT_URL, ...env };
  return new Promise((done, fail) => {
    execFile(command, args, { env: settings, cwd: folder, timeout: program_timeout_ms }, (error, output, messages) => {
      if (error === null) done(output.trimEnd().split('\n'));
      else fail(new Error(`${command} ${args.join(' ')}: ${error.message}\n${output}${messages}`));
    });
  });
}

/** Compiles a TypeScript program to where it finds the packages of the repository. */
async function compile(file: string): Promise<string> {
  const target = join('node_modules/.cache/examples', basename(file).replace('.ts', '.mjs'));
  const { code } = await transform(await readFile(file, 'utf8'), {
    jsc: { target: 'es2022', parser: { syntax: 'typescript' } },
    module: { type: 'es6' },
  });
  await mkdir('node_modules/.cache/examples', { recursive: true });
  await writeFile(target, code);
  return resolve(target);
}

const isInstalled = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;
const hasPython = isInstalled('python3', '--version');
const python = (file: string) => (env?: NodeJS.ProcessEnv) => run('python3', [resolve(file)], env);
const typescript = (file: string) => async (env?: NodeJS.ProcessEnv) =>
  run(process.execPath, [await compile(file)], env);

/** A program, and the tool without which it is skipped. */
interface Example {
  file: string;
  start: (env?: NodeJS.ProcessEnv) => Promise<string[]>;
  needs: string;
  isRunnable: boolean;
}

const greenhouses: (Example & { language: string })[] = [
  {
    language: 'TypeScript',
    file: 'examples/typescript/greenhouse.ts',
    start: typescript('examples/typescript/greenhouse.ts'),
    needs: 'node',
    isRunnable: true,
  },
  {
    language: 'Python',
    file: 'examples/python/greenhouse.py',
    start: python('examples/python/greenhouse.py'),
    needs: 'python3',
    isRunnable: hasPython,
  },
  {
    language: 'Go',
    file: 'examples/go/greenhouse.go',
    start: () => run('go', ['run', resolve('examples/go/greenhouse.go')]),
    needs: 'go',
    isRunnable: isInstalled('go', 'version'),
  },
  {
    language: 'Java',
    file: 'examples/java/Greenhouse.java',
    start: () => run('java', [resolve('examples/java/Greenhouse.java')]),
    needs: 'java',
    isRunnable: isInstalled('java', '-version'),
  },
];

const paho = { needs: 'paho-mqtt', isRunnable: hasPython && isInstalled('python3', '-c', 'import paho.mqtt.enums') };
const publishers: Example[] = [
  {
    file: 'examples/typescript/publish.ts',
    start: typescript('examples/typescript/publish.ts'),
    needs: 'node',
    isRunnable: true,
  },
  { file: 'examples/python/publish.py', start: python('examples/python/publish.py'), ...paho },
];

/** Declares a test of an example, or a skipped one whose name says what is missing. */
function testExample({ file, needs, isRunnable }: Omit<Example, 'start'>, body: () => Promise<void>): void {
  const name = isRunnable ? file : `${file}: ${needs} is not installed`;
  if (!isRunnable) process.stderr.write(`skipped: ${name}\n`);
  (isRunnable ? it : it.skip)(name, body, program_timeout_ms * 2);
}

describe('programs that manage a device', () => {
  for (const { language, start, ...example } of greenhouses)
    testExample(example, async () => {
      // what exists already is used: an earlier run may have ended half-way
      const project = { name: `Greenhouse ${language}`, id_customer: 'example' };
      await call('POST', '/projects/', project);
      const lines = await start();
      expect(lines).toEqual([
        'device Bench 1@acme',
        expect.stringMatching(/^stream \d+ \{"temperature":21\.75\}$/),
        expect.stringMatching(/^stream \d+ \{"temperature":21\.5\}$/),
        'conflict: version 0 is out of date',
        'version 2, firmware 1.1.0, moved by somebody else',
        'deleted',
      ]);
      expect(await call('GET', '/projects/')).toMatchObject({ total_documents: 0 });
      expect(await call('GET', '/devices/')).toMatchObject({ total_documents: 0 });
    });
});

describe('programs of a device', () => {
  for (const { start, ...example } of publishers)
    testExample(example, async () => {
      const group = await createGroup('Bench');
      await call('POST', '/devices/', { name: 'Bench 2', type: 'thermometer', id_group: group });
      const path = '/devices/Bench%202%40acme/';
      const file = Buffer.from('{"period_s":5}').toString('base64');
      await call('POST', `${path}deviceconfigs/`, { name: 'settings.json', version: '1.0', file });
      await call('PUT', `${path}deviceconfigs/settings.json/desired/`, { version: '1.0' });
      for (const name of ['identify', 'dance']) await call('POST', `${path}commands/`, { name });
      const API_KEY = await service.issueKey('acme', 'device', '--id-device', 'Bench 2@acme');
      expect(await start({ API_KEY })).toEqual([
        ...['settings.json 1.0: 14 bytes', 'identify: done', 'dance: failed'],
        'published to Bench 2@acme/streams',
      ]);
      const commands = await call<List>('GET', `${path}commands/?order=1`);
      expect(commands.result).toMatchObject([
        { status: 'done', result: { runs: expect.stringMatching(/^publish\.(ts|py)$/) } },
        { status: 'failed' },
      ]);
      expect(await readFile(join(folder, 'settings.json'), 'utf8')).toBe('{"period_s":5}');
      expect(await call('GET', `${path}state/`)).toMatchObject({ delta: {}, reported_version: 1 });
      const { result } = await call<List>('GET', `${path}streams/`);
      expect(result).toMatchObject([{ protocol: 'mqtt', data: { temperature: 20.5 } }]);
      await call('DELETE', '/projects/Bench%40acme/');
    });

  const file = 'examples/python/commands.py';
  testExample({ file, ...paho }, async () => {
    const group = await createGroup('Bench');
    await call('POST', '/devices/', { name: 'Bench 3', type: 'thermometer', id_group: group });
    const path = '/devices/Bench%203%40acme/';
    const API_KEY = await service.issueKey('acme', 'device', '--id-device', 'Bench 3@acme');
    const { PATH, HOME } = process.env;
    const env = { PATH, HOME, API_KEY, DEVICE: 'Bench 3@acme', MQTT_URL: `mqtt://127.0.0.1:${service.mqttPort}` };
    const program = startProcess('python3', [resolve(file)], { env });
    try {
      await waitUntil(() => program.out().includes('connected: Success'), program_timeout_ms);
      for (const name of ['identify', 'dance']) await call('POST', `${path}commands/`, { name });
      const commands = () => call<List>('GET', `${path}commands/?order=1`);
      await waitUntil(async () => (await commands()).result.every(({ status }) => /done|failed/.test(`${status}`)));
      const done = { status: 'done', result: { runs: 'commands.py' } };
      expect((await commands()).result).toMatchObject([done, { status: 'failed' }]);
      await call('DELETE', '/projects/Bench%40acme/');
    } finally {
      await program.stop('SIGKILL');
    }
  });
});

describe('sketches, compiled for this machine', () => {
  const isRunnable = isInstalled('g++', '--version');

  /** Compiles a sketch with the stand-ins of tests/support/arduino and runs it for the simulated time. */
  async function runSketch(name: string, settings: Record<string, string | number>, duration_ms: number) {
    const config = Object.entries(settings).map(([label, value]) => `#define ${label} ${JSON.stringify(value)}`);
    const sketch = join(folder, `${name}.ino`);
    await copyFile(`examples/arduino/${name}/${name}.ino`, sketch);
    await writeFile(join(folder, 'config.h'), config.join('\n'));
    const support = resolve('tests/support/arduino');
    const flags = ['-std=c++17', '-Wall', '-Wextra', '-Werror', '-I', support, '-I', folder];
    await run('g++', [...flags, '-x', 'c++', sketch, join(support, 'main.cpp'), '-o', join(folder, name)]);
    return run(join(folder, name), [String(duration_ms)]);
  }

  /** The names that a sketch's config.example.h defines: the settings that its user fills in. */
  async function settingsOf(name: string): Promise<string[]> {
    const text = await readFile(`examples/arduino/${name}/config.example.h`, 'utf8');
    return [...text.matchAll(/^#define (\w+)/gm)].map(([, label = '']) => label);
  }
  const network = { WIFI_SSID: 'network', WIFI_PASSWORD: 'secret' };
  const device = 'Sketch+1@acme';
  const path = `/devices/${encodeURIComponent(device)}/`;

  for (const name of ['greenhouse_http', 'greenhouse_mqtt'])
    testExample({ file: `examples/arduino/${name}/${name}.ino`, needs: 'g++', isRunnable }, async () => {
      const group = await createGroup(name);
      await call('POST', '/devices/', { name: 'Sketch+1', type: 'thermometer', id_group: group });
      const API_KEY = await service.issueKey('acme', 'device', '--id-device', device);
      const credentials = { username: `sketch-${name}`, password: 'open sesame' };
      await call('POST', path.replace('devices', 'mqttdevices').concat('credentials/'), credentials);
      const { port } = new URL(service.url);
      const settings = name.endsWith('http')
        ? { ...network, DEVICE_PLATFORM_URL: `http://127.0.0.1:${port}`, API_KEY, DEVICE: device }
        : {
            ...{ ...network, MQTT_HOST: '127.0.0.1', MQTT_PORT: service.mqttPort },
            ...{ MQTT_USERNAME: credentials.username, MQTT_PASSWORD: credentials.password, DEVICE: device },
          };
      expect(Object.keys(settings)).toEqual(await settingsOf(name));

      await call('POST', `${path}commands/`, { name: 'identify' });
      const file = Buffer.from('20\n').toString('base64');
      await call('POST', `${path}deviceconfigs/`, { name: 'period.txt', version: '1.0', file });
      await call('PUT', `${path}deviceconfigs/period.txt/desired/`, { version: '1.0' });
      // measurements at 0, 10, … 60 s; at 0, 10, 30, 50 s with the file
      const lines = await runSketch(name, settings, 65_000);
      expect(lines).toEqual(
        name.endsWith('http')
          ? ['sent 1 readings', 'period.txt 1.0: status 200', 'identify: status 200', 'sent 3 readings']
          : Array<string>(7).fill('published'),
      );
      const streams = await call<List>('GET', `${path}streams/`);
      expect(streams.total_documents).toBe(name.endsWith('http') ? 4 : 7);
      expect(streams.result[0]).toMatchObject({ data: { temperature: 21.49 } });
      if (name.endsWith('http')) {
        expect((await call<List>('GET', `${path}commands/`)).result).toMatchObject([{ result: { readings: 0 } }]);
        const { result } = await call<List>('GET', `${path}deviceconfigs/`);
        expect(result).toMatchObject([{ desired: true, date_deployed: expect.any(Number) }]);
        expect(await call('GET', `${path}state/`)).toMatchObject({ delta: {} });
      }
      await call('DELETE', `/projects/${name}%40acme/`);
    });
});

it(
  'examples/webhook-receiver/receiver.ts',
  async () => {
    const program = await compile('examples/webhook-receiver/receiver.ts');
    const PORT = String(await findFreePort());
    const { PATH } = process.env;
    const API_KEY = await service.issueKey('receiver', 'admin');
    const env = { PATH, DEVICE_PLATFORM_URL: service.url, API_KEY, PORT };
    const receiver = startProcess(process.execPath, [program], { env });
    const lines = () => receiver.out().trimEnd().split('\n');
    try {
      await waitUntil(() => lines().includes('test: received'), program_timeout_ms);
      const forged = await fetch(`http://127.0.0.1:${PORT}`, {
        method: 'POST',
        body: '{"id":"1","type":"device.created"}',
      });
      expect(forged.status).toBe(401);
      receiver.kill('SIGINT');
      expect(await receiver.ended).toBe(0);
      expect(lines()).toEqual([
        'listening',
        expect.stringMatching(/^webhook\.test Example receiver@receiver$/),
        'test: received',
        'refused: Missing required headers',
        'deleted',
      ]);
      expect(await call('GET', '/webhooks/', undefined, API_KEY)).toMatchObject({ total_documents: 0 });
    } finally {
      await receiver.stop('SIGKILL');
    }
  },
  program_timeout_ms,
);

it('examples/migrate/migrate.mjs', async () => {
  const former = await service.issueKey('acme', 'write');
  const group = await createGroup('Plant');
  await call('POST', '/models/', { name: 'PT-100', properties: { maker: 'Other' } });
  await call('POST', '/assets/', { name: 'Chiller', id_group: group });
  const pump = { name: 'Pump', type: 'pump' };
  const checksum = '0123456789abcdef0123456789abcdef01234567';
  await call('POST', '/devices/', { ...pump, id_group: group, id_model: 'PT-100@acme', lon: 1, lat: 2, checksum });
  await call('POST', '/devices/', {
    ...pump,
    id_asset: 'Chiller@acme',
    networking: { type: 'gprs', carrier: 'Isobar' },
  });
  await call('PUT', '/groups/Plant@acme/', { name: 'Plant 1' });
  const file = Buffer.from('hello').toString('base64');
  await call('POST', '/devices/Pump@acme/deviceconfigs/', { name: 'boot.cfg', version: '1.0', file });
  await call('POST', '/mqttdevices/Pump@acme/topics/', { name: 'plant/#' });
  const entry = (at: number) => ({ at, protocol: 'v2', data: { pad: 'x'.repeat(3000) } });
  // one page of these is too large for one body
  for (const first of [0, 300])
    await call(
      'POST',
      '/devices/Pump-2@acme/streams/',
      Array.from({ length: 300 }, (_, index) => entry(first + index)),
    );
  await call('POST', '/devices/Pump@acme/streams/', { at: 1, _t: 'sta', data: {} });
  await call('PUT', '/projects/Plant@acme/', { enabled: false });

  const API_KEY = await service.issueKey('copy', 'write');
  const env = { OLD_URL: service.url, OLD_KEY: former, OLD_HEADER: 'carriots.apikey', API_KEY, ACCOUNT: 'copy' };
  const migrate = () => run(process.execPath, [resolve('examples/migrate/migrate.mjs')], env);
  const summary = (created: (count: number) => number) => [
    ...Object.entries({ models: 1, projects: 1, services: 1, groups: 1, assets: 1, devices: 2 }).map(
      ([type, count]) => `${type}: ${count} found, ${created(count)} created`,
    ),
    'everything is copied',
  ];
  expect(await migrate()).toEqual(summary((count) => count));
  expect(await migrate()).toEqual(summary(() => 0));

  /** Reads a list, without the fields that differ between accounts. */
  const comparable = async (path: string, apiKey: string) => {
    const { result } = await call<List>('GET', path, undefined, apiKey);
    // the identifiers of streams, unlike all others, come from the service
    const isNew = (name: string, value: unknown) =>
      /^(?:owner|updater|version|created_at|updated_at|last_\w+_at|\w+_due_at)$/.test(name) ||
      (name === 'id_developer' && /^[0-9a-f]{64}@/.test(String(value)));
    const text = JSON.stringify(result, (name, value) => (isNew(name, value) ? undefined : value));
    return JSON.parse(text.replaceAll('@acme"', '@copy"')) as Json[];
  };
  const lists = ['models', 'projects', 'services', 'groups', 'assets', 'devices', 'streams'].map((type) => `/${type}/`);
  for (const path of lists) expect(await comparable(path, API_KEY)).toEqual(await comparable(path, key));
  expect(await comparable('/mqttdevices/Pump@copy/topics/', API_KEY)).toEqual([{ name: 'plant/#' }]);
  const [config] = await comparable('/devices/Pump@copy/deviceconfigs/', API_KEY);
  expect(config).toMatchObject({ name: 'boot.cfg', size: 5, checksum: 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d' });

  // streams that came late on the old side, also of protocol v3, and one with an early time on the new side
  await call('PUT', '/projects/Plant@acme/', { enabled: true });
  await call('PUT', '/projects/Plant@copy/', { enabled: true }, API_KEY);
  await call('POST', '/devices/Pump-2@acme/streams/', entry(2.5));
  await call('POST', '/devices/Pump-2@copy/streams/', entry(3.5), API_KEY);
  const data = { b: 1, a: [2] };
  const v3 = createHmac('sha1', checksum).update('{"a":[2],"b":1}').digest('hex');
  await call('POST', '/devices/Pump@acme/streams/', { at: 2, protocol: 'v3', data, checksum: v3 });
  // a side that has a stream which cannot be stored
  const old = createServer(async ({ url = '' }, response) => {
    const answer = await fetch(service.url + url, { headers: { 'carriots.apikey': former } });
    const body = await answer.text();
    if (!url.startsWith('/devices/Pump%40acme/streams/')) return response.end(body);
    const { total_documents, result } = JSON.parse(body) as List;
    response.end(JSON.stringify({ total_documents, result: [result[0], { at: 1.5, data: 7 }, ...result.slice(1)] }));
  }).listen(0, '127.0.0.1');
  await once(old, 'listening');
  env.OLD_URL = `http://127.0.0.1:${(old.address() as AddressInfo).port}`;
  expect((await migrate()).at(-1)).toBe('everything is copied but 1 streams: see above');
  expect((await migrate()).at(-1)).toBe('everything is copied but 1 streams: see above');
  old.close();
  const timesOf = async (path: string, apiKey: string) =>
    (await call<List>('GET', `${path}?max=1000&sort=at&order=1`, undefined, apiKey)).result.map(({ at }) => at);
  expect(await timesOf('/devices/Pump@copy/streams/', API_KEY)).toEqual([1, 2]);
  const times = await timesOf('/devices/Pump-2@copy/streams/', API_KEY);
  expect(times).toHaveLength(602);
  expect(times.filter((at) => at !== 3.5)).toEqual(await timesOf('/devices/Pump-2@acme/streams/', key));
});
