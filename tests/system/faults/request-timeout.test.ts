import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, jest } from '@jest/globals';
import { waitUntil } from '../../support/process.js';
import { createFixtures, startTestService, type TestService } from '../../support/service.js';

/** Shorter than that of the reference, and longer than a busy machine stops. */
const answer_limit_ms = 3000;
const max_costly_per_account = 8;

let service: TestService;

beforeAll(async () => {
  service = await startTestService({ answer_limit_ms });
});
afterAll(async () => {
  jest.restoreAllMocks();
  await service.stop();
});

type Database = ReturnType<TestService['db']['collection']>['db'];
type Command = (...args: Parameters<Database['command']>) => Promise<unknown>;

/** Wraps the commands that lists send to a collection. @returns what puts the former ones back */
function wrapCommands(wrapped: string, wrap: (command: Command) => Command): () => void {
  const { collection } = service.db;
  service.db.collection = (plural) => {
    const real = collection(plural);
    if (plural !== wrapped) return real;
    const command = { value: wrap((...args) => real.db.command(...args)) };
    return Object.create(real, { db: { value: Object.create(real.db, { command }) } });
  };
  return () => void Object.assign(service.db, { collection });
}

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
  const waits = [answer_limit_ms + 300, 600];
  const unwrap = wrapCommands('projects', (command) => {
    const wait_ms = waits.shift() ?? 0;
    return async (...args) => {
      await sleep(wait_ms);
      if (wait_ms > answer_limit_ms) throw new Error('too late');
      return command(...args);
    };
  });
  expect(await listProjects()).toEqual([503, true]);
  expect(await listProjects()).toEqual([200, true]);
  agent.destroy();
  unwrap();
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
  const unwrap = wrapCommands('projects', (command) => async (...args) => {
    const reply = await command(...args);
    commands.push(Object.keys(args[0])[0] ?? '');
    if (commands.length === 1) await sleep(answer_limit_ms + 500);
    return reply;
  });
  expect((await api.get('/projects/?id_customer=c-1')).body.code).toBe(5031);
  await waitUntil(() => commands.includes('killCursors'));
  expect(commands).toEqual(['find', 'killCursors']);
  unwrap();
});

/** Lets a request wait for its turn for most of its time. */
async function sendToLine<Answer>(send: () => Promise<Answer>): Promise<Answer> {
  const { costly } = service.store;
  // earlier requests go on after their time-out
  await waitUntil(() => costly.held === 0);
  const held = Array.from({ length: max_costly_per_account }, () => costly.take('acme'));
  const answer = send();
  await waitUntil(() => costly.waiting === 1);
  await sleep(answer_limit_ms * 0.6);
  for (const release of held) release();
  return answer;
}

it('answers 5033 to a read that has mostly waited for its turn', async () => {
  const api = await service.client();
  const unwrap = wrapCommands('projects', (command) => async (...args) => {
    await sleep(answer_limit_ms);
    return command(...args);
  });
  const { status, body, headers } = await sendToLine(async () => api.get('/projects/'));
  expect([status, body.code, headers['retry-after']]).toEqual([503, 5033, '1']);
  unwrap();
});

it('answers 5031 to a change in progress, however long it has waited: clients repeat after 5033', async () => {
  jest.spyOn(console, 'error').mockImplementation(() => undefined);
  const api = await service.client();
  const ended = new AbortController();
  const earlier = service.store.changeMutex('projects acme', () => once(ended.signal, 'abort'));
  const changed = { description: 'changed' };
  const change = async () => api.patch('/projects/?name=copy%201&confirm=1', changed);
  expect((await sendToLine(change)).body.code).toBe(5031);
  ended.abort();
  await earlier;
  const countChanged = () => service.db.collection('projects').countDocuments(changed);
  await waitUntil(async () => (await countChanged()) === 1);
});
