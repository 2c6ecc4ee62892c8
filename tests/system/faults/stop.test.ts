import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { Agent, type ClientRequest, request } from 'node:http';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { openSandbox, type RunningService, type Sandbox, useSandbox, waitUntil } from '../../support/process.js';

const sandbox = useSandbox('each test');

const body = JSON.stringify({ name: 'in flight', id_customer: 'c' });

/** Sends half the body of a create on a keep-alive connection; `finish` sends the rest. */
async function startCreate(service: RunningService): Promise<{ finish(): Promise<number> }> {
  const agent = new Agent({ keepAlive: true });
  const headers = { 'service.apikey': service.key, 'Content-Length': body.length };
  const sent: ClientRequest = request(`${service.url}/projects/`, { method: 'POST', headers, agent });
  const answered = once(sent, 'response');
  answered.catch(() => undefined);
  sent.write(body.slice(0, 10));
  await waitUntil(async () => (await service.send('GET', '/metrics')).status === 200);
  return {
    async finish() {
      sent.end(body.slice(10));
      const [response] = await answered;
      response.resume();
      return response.statusCode;
    },
  };
}

async function refusesConnections({ url }: RunningService): Promise<boolean> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  return once(socket, 'connect')
    .then(
      () => false,
      () => true,
    )
    .finally(() => socket.destroy());
}

const isAlive = (pid: number) => existsSync(`/proc/${pid}`);

describe('SIGTERM', () => {
  let other: Sandbox;
  let stuck: Promise<{ code: number | string; took_ms: number }>;

  // runs in parallel, because it takes as long as all other tests together
  beforeAll(async () => {
    other = await openSandbox();
    const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
    uri.pathname = '/test-stop';
    const service = await other.service({ MONGODB_URI: uri.href, SECRET_KEY: 'only for this test' });
    await startCreate(service);
    const startedAt = performance.now();
    service.kill('SIGTERM');
    stuck = service.ended.then((code) => ({ code, took_ms: performance.now() - startedAt }));
  });
  afterAll(() => other.close());

  it.each([
    ['to the process', 'node', ['process']],
    ['twice to its group', 'node', ['group', 'group']],
    ['to npm start alone', 'npm', ['process']],
    ['twice to the group of npm start', 'npm', ['group', 'group']],
  ] as const)('%s: refuses connections, finishes requests in flight, exits with 0', async (_label, how, targets) => {
    const service = await sandbox.service({}, { how });
    const mongod = await sandbox.embeddedPid();
    const { finish } = await startCreate(service);
    for (const target of targets) service.kill('SIGTERM', target);
    await waitUntil(() => refusesConnections(service));
    expect(await finish()).toBe(200);
    expect(await service.ended).toBe(0);
    expect(isAlive(mongod)).toBe(false);
    expect(service.complaints()).toEqual([]);
    await expect(sandbox.embeddedUri()).rejects.toThrow('ENOENT');
  });

  it('before the service listens: exits with 0 and leaves nothing running', async () => {
    const started = await sandbox.start();
    await waitUntil(async () => isAlive(await sandbox.embeddedPid()));
    const mongod = await sandbox.embeddedPid();
    started.kill('SIGTERM');
    expect(await started.ended).toBe(0);
    expect(isAlive(mongod)).toBe(false);
  });

  it('waits at most 10 s for requests that do not finish', async () => {
    const { code, took_ms } = await stuck;
    expect(code).toBe(0);
    // 8 s for the request, the rest for closing
    expect(took_ms).toBeGreaterThan(7_000);
    expect(took_ms).toBeLessThan(60_000);
  });

  it('does not wait for jobs whose database takes no writes', async () => {
    const mongod = await sandbox.mongod();
    await mongod.start();
    const service = await sandbox.service({ MONGODB_URI: mongod.uri, SECRET_KEY: 'only for this test' });
    const { client } = sandbox.database(mongod.uri);
    await client.db('admin').command({ fsync: 1, lock: true });
    const startedAt = performance.now();
    service.kill('SIGTERM');
    expect(await service.ended).toBe(0);
    // 2 s; 30 s if it waits for them
    expect(performance.now() - startedAt).toBeLessThan(20_000);
    await client.db('admin').command({ fsyncUnlock: 1 });
  });
});
