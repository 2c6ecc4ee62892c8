import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, jest } from '@jest/globals';
import { waitUntil } from '../support/process.js';
import { createFixtures, startTestService, type TestService } from '../support/service.js';

/** Shorter than that of the reference, so that nothing waits for it. */
const answer_limit_ms = 1000;

let service: TestService;

beforeAll(async () => {
  service = await startTestService({ answer_limit_ms });
});
afterAll(async () => {
  jest.restoreAllMocks();
  await service.stop();
});

it('keeps the connection after a timeout response, even if the handler fails later', async () => {
  const errorLog = jest.spyOn(console, 'error').mockImplementation(() => undefined);
  const { body } = await (await service.client()).post('/apikeys/', { username: 'bob', scope: 'read' });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const listProjects = async () => {
    const headers = { 'service.apikey': body.details.key };
    const sent = request(`${service.url}/projects/`, { agent, headers });
    const answered = once(sent, 'response');
    sent.end();
    const [response] = await answered;
    response.resume();
    await once(response, 'end');
    return [response.statusCode, sent.reusedSocket];
  };
  expect(await listProjects()).toEqual([200, false]);

  // the first query fails after its request timed out, while the second request is in progress
  const { collection } = service.db;
  const waits = [answer_limit_ms + 700, 500];
  service.db.collection = (plural) => {
    const real = collection(plural);
    if (plural !== 'projects') return real;
    const wait_ms = waits.shift() ?? 0;
    const command = async (...args: Parameters<typeof real.db.command>) => {
      await sleep(wait_ms);
      if (wait_ms > answer_limit_ms) throw new Error('too late');
      return real.db.command(...args);
    };
    return Object.create(real, { db: { value: Object.create(real.db, { command: { value: command } }) } });
  };
  expect(await listProjects()).toEqual([503, true]);
  expect(await listProjects()).toEqual([200, true]);
  agent.destroy();
  // the timeout is logged; a later failure may be logged, but never by Express on the console
  const messages = errorLog.mock.calls.map(([message]) => message);
  expect([messages[0], messages.filter((message) => message !== 'BD error' && message !== 'exception')]).toEqual([
    'BD error',
    [],
  ]);
});

it('stops reading a list after its timeout was answered, and closes the cursor', async () => {
  jest.spyOn(console, 'error').mockImplementation(() => undefined);
  const api = await service.client();
  await createFixtures(api).project();
  const [stored] = await service.db.collection('projects').find().toArray();
  const copies = Array.from({ length: 300 }, (_, i) => ({
    ...stored,
    _id: service.db.newId(),
    name: `copy ${i}`,
    id_developer: `copy ${i}@acme`,
  }));
  await service.db.collection('projects').insertMany(copies);
  const commands: string[] = [];
  const { collection } = service.db;
  service.db.collection = (plural) => {
    const real = collection(plural);
    if (plural !== 'projects') return real;
    const command = async (...args: Parameters<typeof real.db.command>) => {
      const reply = await real.db.command(...args);
      commands.push(Object.keys(args[0])[0] ?? '');
      if (commands.length === 1) await sleep(answer_limit_ms + 500);
      return reply;
    };
    return Object.create(real, { db: { value: Object.create(real.db, { command: { value: command } }) } });
  };
  expect((await api.get('/projects/?id_customer=c-1')).body.code).toBe(5031);
  await waitUntil(() => commands.includes('killCursors'));
  expect(commands).toEqual(['find', 'killCursors']);
});
