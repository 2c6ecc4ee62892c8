import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, jest } from '@jest/globals';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(async () => {
  jest.restoreAllMocks();
  await service.stop();
});

it('keeps a connection on which it has answered in time, whatever becomes of the request afterwards', async () => {
  const logged = jest.spyOn(console, 'error').mockImplementation(() => undefined);
  const { body } = await (await service.client()).post('/apikeys/', { username: 'bob', scope: 'read' });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ask = async () => {
    const headers = { 'service.apikey': body.details.key };
    const sent = request(`${service.url}/projects/`, { agent, headers });
    const answered = once(sent, 'response');
    sent.end();
    const [response] = await answered;
    response.resume();
    await once(response, 'end');
    return [response.statusCode, sent.reusedSocket];
  };
  expect(await ask()).toEqual([200, false]);

  // the first look-up fails after its request was answered, while the second request is under way
  const { collection } = service.db;
  const waits = [5200, 1500];
  service.db.collection = (plural) => {
    const real = collection(plural);
    if (plural !== 'projects') return real;
    const wait_ms = waits.shift() ?? 0;
    const command = async (...given: Parameters<typeof real.db.command>) => {
      await sleep(wait_ms);
      if (wait_ms > 5000) throw new Error('too late');
      return real.db.command(...given);
    };
    return Object.create(real, { db: { value: Object.create(real.db, { command: { value: command } }) } });
  };
  expect(await ask()).toEqual([503, true]);
  expect(await ask()).toEqual([200, true]);
  agent.destroy();
  // the time-out is an event of the log; what comes later may be one, but never the framework's on the console
  const messages = logged.mock.calls.map(([message]) => message);
  expect([messages[0], messages.filter((message) => message !== 'BD error' && message !== 'exception')]).toEqual([
    'BD error',
    [],
  ]);
});
