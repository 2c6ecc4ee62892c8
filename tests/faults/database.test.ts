import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { openSandbox, type RunningService, type Sandbox, sendRequest, type TestMongod } from '../support/process.js';
import { startTestService } from '../support/service.js';

/** One service and one database that goes and comes back, from the first start on (contract 1). */
let sandbox: Sandbox;
let mongod: TestMongod;
let service: RunningService;
let everything: Call[];
let id: string;

type Call = [method: string, path: string, body?: unknown];

beforeAll(async () => {
  const { operations, stop } = await startTestService();
  await stop();
  everything = operations.map(({ method, path, body }) => [
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
}, 60_000);
afterAll(() => sandbox.close());

const unavailable = {
  'application/json': '{"code":5031,"message":"BD error","details":{}}',
  'application/xml':
    '<?xml version="1.0" encoding="UTF-8"?><response><code>5031</code><message>BD error</message><details/></response>',
};

/** Asserts what all these requests, sent at once, are answered, and that it takes less than 5 s. */
async function expectUnavailable(calls: readonly Call[], key: string): Promise<void> {
  const formats = Object.entries(unavailable);
  const asked = calls.flatMap(([method, path, body]) =>
    formats.map(async ([Accept, text]) => {
      const reply = await service.send(method, path, body, { Accept, 'service.apikey': key });
      const what = `${method} ${path} ${Accept}`;
      expect([what, reply.status, reply.text]).toEqual([what, 503, text]);
      expect([what, reply.took_ms < 5000]).toEqual([what, true]);
    }),
  );
  expect(asked.length).toBeGreaterThan(calls.length);
  await Promise.all(asked);
}

async function expectAlive(): Promise<void> {
  const [alive, ready] = await Promise.all([service.send('GET', '/healthz'), service.send('GET', '/readyz')]);
  expect([alive.status, alive.body, ready.status]).toEqual([200, { status: 'ok' }, 503]);
  expect(alive.took_ms).toBeLessThan(5000);
  expect(ready.took_ms).toBeLessThan(5000);
}

/** Requests that pass every check and so ask the database whoever asks. */
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

/** What carries the key that is cached gets past authentication, and meets the database later on its way. */
async function expectUnanswerable(): Promise<void> {
  await Promise.all([
    expectUnavailable(validCalls(), service.key),
    expectUnavailable(everything, 'another'),
    expectAlive(),
  ]);
}

async function expectBack(): Promise<void> {
  await service.ready(20_000);
  const shown = await service.send('GET', `/projects/${id}/`);
  expect([shown.status, shown.body.name]).toEqual([200, 'weather']);
}

it('listens before there is a database, and says so', async () => {
  await expectAlive();
  await expectUnavailable(everything, 'whatever');
  const keyless = await sendRequest('GET', `${service.url}/projects/`);
  expect([keyless.status, keyless.body.code]).toEqual([401, 4011]);
});

it('becomes ready by itself when the database comes', async () => {
  await mongod.start();
  await service.ready(20_000);
  expect(service.key).toMatch(/^[\w-]{43}$/);
  const created = await service.send('POST', '/projects/', { name: 'weather', id_customer: 'c' });
  expect(created.body.code).toBe(2001);
  id = 'weather@demo';
  await expectBack();
});

it('answers in time while the database hangs, and goes on when it wakes', async () => {
  await service.send('GET', '/projects/');
  await mongod.kill('SIGSTOP');
  await expectUnanswerable();
  await mongod.kill('SIGCONT');
  await expectBack();
});

it('answers in time while the database is gone, and goes on when it is back', async () => {
  await service.send('GET', '/projects/');
  await mongod.kill('SIGKILL');
  await expectUnanswerable();
  await mongod.start();
  await expectBack();
  const again = await service.send('PUT', `/projects/${id}/`, { description: 'still here' });
  expect(again.body.code).toBe(2005);
});

it('has come through all this as one process', async () => {
  expect(service.complaints()).toEqual([]);
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
});
