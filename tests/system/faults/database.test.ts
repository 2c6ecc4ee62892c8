import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { MongoMemoryServer } from 'mongodb-memory-server';
import { findMongod } from '../../../src/mongod/binary.js';
import {
  openSandbox,
  type RunningService,
  type Sandbox,
  sendRequest,
  type TestMongod,
  waitUntil,
} from '../../support/process.js';
import { startTestService } from '../../support/service.js';

/** One service whose database is missing at first, then hangs and crashes (reference/configuration.md#start). */
let sandbox: Sandbox;
let mongod: TestMongod;
let service: RunningService;
let allCalls: Call[];
let id: string;

type Call = [method: string, path: string, body?: unknown];

beforeAll(async () => {
  const { operations, stop } = await startTestService();
  await stop();
  allCalls = operations.map(({ method, path, body }) => [
    method.toUpperCase(),
    path.replaceAll(/\{\w*id_developer\}/g, 'gone@demo').replaceAll(/\{\w+\}/g, 'x'),
    body && {},
  ]);
  sandbox = await openSandbox();
  mongod = await sandbox.mongod();
  service = await sandbox.service(
    { MONGODB_URI: mongod.uri, SECRET_KEY: 'only for this test', LOG_LEVEL: 'silent' },
    { ready: false },
  );
});
afterAll(() => sandbox.close());

const unavailable = {
  'application/json': '{"code":5031,"message":"BD error","details":{}}',
  'application/xml':
    '<?xml version="1.0" encoding="UTF-8"?><response><code>5031</code><message>BD error</message><details/></response>',
};

/** Asserts that all calls, sent concurrently, are answered with 5031 within 5 s. */
async function expectUnavailable(calls: readonly Call[], key: string): Promise<void> {
  const formats = Object.entries(unavailable);
  const responses = calls.flatMap(([method, path, body]) =>
    formats.map(async ([Accept, text]) => {
      const reply = await service.send(method, path, body, { Accept, 'service.apikey': key });
      const label = `${method} ${path} ${Accept}`;
      expect([label, reply.status, reply.text]).toEqual([label, 503, text]);
      // within 5 s, and what a hundred requests at once take on a busy machine
      expect([label, reply.took_ms < 8000]).toEqual([label, true]);
    }),
  );
  expect(responses.length).toBeGreaterThan(calls.length);
  await Promise.all(responses);
}

async function expectAlive(): Promise<void> {
  const [alive, ready] = await Promise.all([service.send('GET', '/healthz'), service.send('GET', '/readyz')]);
  expect([alive.status, alive.body, ready.status]).toEqual([200, { status: 'ok' }, 503]);
  expect(alive.took_ms).toBeLessThan(8000);
  expect(ready.took_ms).toBeLessThan(8000);
}

/** Calls that pass every check and therefore reach the database. */
function validCalls(): Call[] {
  return [
    ['GET', '/projects/'],
    ['GET', `/projects/${id}/`],
    ['GET', `/projects/${id}/services/`],
    ['PUT', `/projects/${id}/`, { description: 'x' }],
    ['DELETE', '/devices/gone@demo/'],
    ['POST', '/models/', { name: `m ${Math.random()}` }],
    ['GET', '/devices/gone@demo/deviceconfigs/a/1/'],
    ['POST', '/devices/gone@demo/deviceconfigs/', { name: 'a', version: '1', file: 'eA==' }],
    ['GET', '/apikeys/'],
    ['POST', '/apikeys/', { username: 'bob', scope: 'read' }],
  ];
}

/** Asserts 5031 for calls with a cached key, which fail after authentication, and with another key. */
async function expectAllUnavailable(): Promise<void> {
  await Promise.all([
    expectUnavailable(validCalls(), service.key),
    expectUnavailable(allCalls, 'another'),
    expectAlive(),
  ]);
}

async function expectRecovered(): Promise<void> {
  await service.ready();
  const shown = await service.send('GET', `/projects/${id}/`);
  expect([shown.status, shown.body.name]).toEqual([200, 'weather']);
}

it('says what a standalone server lacks', async () => {
  const { path, version } = await findMongod({ env: process.env, print: () => undefined });
  const mongod = await MongoMemoryServer.create({
    binary: { systemBinary: path, version },
    instance: { storageEngine: 'wiredTiger', launchTimeout: 60_000 },
  });
  try {
    const BOOTSTRAP_API_KEY = 'key-of-this-test';
    const settings = { MONGODB_URI: mongod.getUri('test'), SECRET_KEY: 'only for this test', BOOTSTRAP_API_KEY };
    const service = await sandbox.service(settings, { ready: false });
    await waitUntil(() => /standalone server; start mongod with --replSet/.test(service.err()));
    const { status, body } = await service.send('GET', '/projects/');
    expect([status, body.code]).toEqual([503, 5031]);
  } finally {
    await mongod.stop();
  }
});

it('listens without a database and reports that it is not ready', async () => {
  await expectAlive();
  await expectUnavailable(allCalls, 'whatever');
  const keyless = await sendRequest('GET', `${service.url}/projects/`);
  expect([keyless.status, keyless.body.code]).toEqual([401, 4011]);
});

it('becomes ready when the database appears', async () => {
  await mongod.start();
  await service.ready();
  expect(service.key).toMatch(/^[\w-]{43}$/);
  const created = await service.send('POST', '/projects/', { name: 'weather', id_customer: 'c' });
  expect(created.body.code).toBe(2001);
  id = 'weather@demo';
  await expectRecovered();
});

it('answers in time while the database hangs, and recovers', async () => {
  await service.send('GET', '/projects/');
  await mongod.kill('SIGSTOP');
  await expectAllUnavailable();
  await mongod.kill('SIGCONT');
  await expectRecovered();
});

it('answers in time while the database is down, and recovers', async () => {
  await service.send('GET', '/projects/');
  await mongod.kill('SIGKILL');
  await expectAllUnavailable();
  await mongod.start();
  await expectRecovered();
  const updated = await service.send('PUT', `/projects/${id}/`, { description: 'still here' });
  expect(updated.body.code).toBe(2005);
});

it('has survived all of this in one process', async () => {
  expect(service.complaints()).toEqual([]);
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
});
