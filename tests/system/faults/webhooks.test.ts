import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { writeEventId } from '../../../src/events/store.js';
import type { StoredEvent } from '../../../src/resources/event.js';
import { readTimeOfChange } from '../../support/logged-events.js';
import { openSandbox, type RunningService, type Sandbox, waitUntil } from '../../support/process.js';
import { createRandom } from '../../support/random.js';
import { type Answer, answerWith, type Receiver, startReceiver } from '../../support/receiver.js';

/** The built service, in processes of its own, with receivers that misbehave. */
let sandbox: Sandbox;
let env: NodeJS.ProcessEnv;
let database: ReturnType<Sandbox['database']>;

beforeAll(async () => {
  sandbox = await openSandbox();
  const mongod = await sandbox.mongod();
  await mongod.start();
  env = {
    MONGODB_URI: mongod.uri,
    SECRET_KEY: 'a key that only tests have',
    BOOTSTRAP_API_KEY: 'a-key-of-this-test',
    WEBHOOK_ALLOW_NETS: '127.0.0.0/8',
  };
  database = sandbox.database(mongod.uri);
});
afterAll(() => sandbox?.close());

async function createHook(service: RunningService, name: string, url: string): Promise<string> {
  const created = await service.send('POST', '/webhooks/', { name, url, types: ['device.'] });
  expect(created.body.code).toBe(2001);
  return created.body.details.secret;
}

/** Appends events to the log as its reader does. @returns their ids */
async function log(count: number): Promise<string[]> {
  const time = await readTimeOfChange(database);
  const stored = Array.from({ length: count }, (_, index) => {
    const _id = writeEventId(time, index);
    return {
      _id,
      account: 'demo',
      type: 'device.updated',
      at: 1_795_300_000.5,
      resource: 'device',
      id_developer: `${_id}@demo`,
    } satisfies StoredEvent;
  });
  await database.collection('events').insertMany(stored as never[]);
  return stored.map(({ _id }) => _id);
}

const deliveriesOf = async (service: RunningService) =>
  (await service.send('GET', '/webhooks/digest@demo/deliveries/')).body.result;

/** The first time that each event was received, in this order. */
const firstsOf = (ids: readonly string[]) => [...new Set(ids)];

it('sends nothing with WEBHOOKS=off, also later', async () => {
  const receiver = await startReceiver();
  const off = await sandbox.service({ ...env, WEBHOOKS: 'off' });
  await createHook(off, 'rehearsal', receiver.url);
  const refused = await off.send('POST', '/webhooks/rehearsal@demo/test/');
  expect([refused.status, refused.body]).toEqual([
    503,
    { code: 5033, message: 'overloaded', details: { message: 'WEBHOOKS is off' } },
  ]);
  await waitUntil(() => off.err().includes('WEBHOOKS is off: nothing is sent'));
  const id_project = await off.create('projects', { name: 'P', id_customer: 'c' });
  const id_service = await off.create('services', { name: 'S', id_project });
  const id_group = await off.create('groups', { name: 'G', id_service });
  await off.create('devices', { name: 'off', type: 'x', id_group });
  off.kill('SIGTERM');
  expect(await off.ended).toBe(0);
  const on = await sandbox.service(env);
  await waitUntil(() => on.err().includes('webhooks: this instance delivers'));
  await on.create('devices', { name: 'on', type: 'x', id_group });
  await waitUntil(() => receiver.received.length > 0);
  expect(receiver.events().map(({ id_developer }) => id_developer)).toEqual(['on@demo']);
  await on.send('DELETE', '/webhooks/rehearsal@demo/');
  await on.stop();
  await receiver.close();
});

describe('delivery', () => {
  it('reaches a receiver that answers, fails, hangs, drips, redirects, closes and restarts at random', async () => {
    const seed = Number(process.env.SEED ?? Date.now() % 1e9);
    process.stderr.write(`seed of the misbehaving receiver: ${seed}\n`);
    const random = createRandom(seed);
    const service = await sandbox.service(env);
    const wrong = await startReceiver();
    const taken: string[] = [];
    const arrived: string[] = [];
    const timers = new Set<NodeJS.Timeout>();
    const drip = (response: Parameters<Answer>[0], status: number) => {
      response.writeHead(status);
      const timer = setInterval(() => response.write('.'), 200);
      timers.add(timer);
      response.on('close', () => clearInterval(timer));
    };
    let hangs = 0;
    const answer: Answer = (response, { body }) => {
      const { id } = JSON.parse(body);
      arrived.push(id);
      // the pause after a third failure is 5 min, and attempts while the receiver restarts fail too
      const chance = arrived.filter((one) => one === id).length < 2 ? random() : 0;
      if (chance < 0.7) {
        taken.push(id);
        response.writeHead(chance < 0.5 ? 200 : 204).end();
      } else if (chance < 0.8) response.writeHead(500).end();
      else if (chance < 0.87) response.writeHead(302, { Location: wrong.url }).end();
      else if (chance < 0.95) response.socket?.destroy();
      // each takes the whole time limit
      else if (hangs++ < 2) {
        if (random() < 0.5) drip(response, 503);
      } else response.writeHead(429).end();
    };
    let receiver: Receiver = await startReceiver(0, answer);
    const { port, url } = receiver;
    const past: Receiver['received'] = [];
    const secret = await createHook(service, 'chaos', url);
    const ids: string[] = [];
    for (let round = 0; round < 6; round++) {
      ids.push(...(await log(10)));
      await waitUntil(() => firstsOf(taken).length >= ids.length * 0.5, 120_000);
      await receiver.close();
      past.push(...receiver.received);
      receiver = await startReceiver(port, answer);
    }
    await waitUntil(() => firstsOf(taken).length === ids.length, 300_000);
    await receiver.close();
    for (const timer of timers) clearInterval(timer);
    const received = [...past, ...receiver.received];
    const webhook = new Webhook(secret);
    for (const { body, headers, path } of received) {
      const verified = webhook.verify(body, headers as Record<string, string>);
      expect([path, verified]).toEqual(['/events', JSON.parse(body)]);
    }
    expect([...new Set(taken)].sort()).toEqual(ids);
    // an attempt while the receiver was down never arrived, so it is not the first that is seen
    const list = await service.send('GET', '/webhooks/chaos@demo/deliveries/');
    const attempts: { event: string; attempt: number }[] = list.body.result.toReversed();
    expect(attempts.filter(({ attempt }) => attempt === 1).map(({ event }) => event)).toEqual(ids);
    expect(wrong.received).toEqual([]);
    await wrong.close();
    await service.send('DELETE', '/webhooks/chaos@demo/');
    await service.stop('SIGTERM');
  }, 600_000);

  it('is the work of one instance, and of another when that one is killed', async () => {
    const receiver = await startReceiver();
    const services = [await sandbox.service(env), await sandbox.service(env)] as const;
    const [first, second] = services;
    const secret = await createHook(first, 'takeover', receiver.url);
    const ids = await log(20);
    await waitUntil(() => receiver.received.length >= 20);
    expect(receiver.events().map(({ id }) => id)).toEqual(ids);
    const holds = ({ err }: RunningService) => err().includes('webhooks: this instance delivers');
    const holders = services.filter(holds);
    expect(holders).toHaveLength(1);
    const [holder] = holders;
    const other = holder === first ? second : first;
    // attempts in progress are lost with the process
    receiver.answer(() => undefined);
    ids.push(...(await log(5)));
    await waitUntil(() => receiver.received.length > 20);
    await holder?.stop('SIGKILL');
    receiver.answer(undefined);
    ids.push(...(await log(5)));
    await waitUntil(() => firstsOf(receiver.events().map(({ id }) => id)).length === 30);
    const received = receiver.events().map(({ id }) => id);
    expect(firstsOf(received)).toEqual(ids);
    // only the event that was in progress came twice
    expect(received).toHaveLength(31);
    expect(holds(other)).toBe(true);
    for (const { body, headers } of receiver.received)
      new Webhook(secret).verify(body, headers as Record<string, string>);
    await receiver.close();
    await other.stop('SIGTERM');
  });

  it('tells what a digest collects, or has failed to tell, once after kill -9', async () => {
    const receiver = await startReceiver();
    const first = await sandbox.service(env);
    const hook = { name: 'digest', url: receiver.url, types: ['device.'], format: 'text', digest_s: 3 };
    expect((await first.send('POST', '/webhooks/', hook)).body.code).toBe(2001);
    await log(1);
    // a delivery that is not recorded is repeated
    await waitUntil(async () => (await deliveriesOf(first)).length === 1);
    await log(3);
    await first.stop('SIGKILL');
    const second = await sandbox.service(env);
    await waitUntil(() => receiver.received.length === 2);
    receiver.answer(answerWith(500));
    await log(4);
    await waitUntil(() => receiver.received.length === 3);
    await waitUntil(async () => (await deliveriesOf(second))[0].next_at !== undefined);
    await second.stop('SIGKILL');
    receiver.answer(undefined);
    const third = await sandbox.service(env);
    await waitUntil(() => receiver.received.length === 4);
    await log(1);
    await waitUntil(() => receiver.received.length === 5);
    const titles = receiver.received.map(({ body }) => body.split('\n')[0]);
    const single = expect.stringMatching(/^Device updated: /);
    const failed = '4 events: 4 × Device updated';
    expect(titles).toEqual([single, '3 events: 3 × Device updated', failed, failed, single]);
    await waitUntil(async () => (await deliveriesOf(third)).length === 5);
    await third.send('DELETE', '/webhooks/digest@demo/');
    await third.stop('SIGTERM');
    await receiver.close();
  }, 300_000);

  it('goes on where it stopped after SIGTERM, retries included', async () => {
    const receiver = await startReceiver(0, answerWith(500));
    const service = await sandbox.service(env);
    await createHook(service, 'restart', receiver.url);
    const ids = await log(3);
    await waitUntil(() => receiver.received.length === 3);
    await service.stop('SIGTERM');
    expect(await service.ended).toBe(0);
    receiver.answer(undefined);
    const later = await log(2);
    const before = receiver.received.length;
    const next = await sandbox.service(env);
    await waitUntil(() => receiver.received.length === before + 5, 120_000);
    const received = receiver
      .events()
      .slice(before)
      .map(({ id }) => id);
    expect(received.filter((id) => later.includes(id))).toEqual(later);
    expect([...received].sort()).toEqual([...ids, ...later]);
    await receiver.close();
    await next.stop('SIGTERM');
  });
});

it('keeps secrets out of the logs, and reports those under another SECRET_KEY', async () => {
  const receiver = await startReceiver(0, answerWith(410));
  const service = await sandbox.service({ ...env, LOG_FORMAT: 'json', LOG_LEVEL: 'debug' });
  const secret = await createHook(service, 'secretive', `${receiver.url}?token=of-the-receiver`);
  const made = await service.send('POST', '/webhooks/secretive@demo/secret/');
  await log(1);
  await waitUntil(() => service.err().includes('webhook disabled'));
  for (const text of [secret.slice(6), made.body.details.secret.slice(6), 'of-the-receiver'])
    expect([service.out().includes(text), service.err().includes(text)]).toEqual([false, false]);
  expect(JSON.stringify(await database.collection('events').find().toArray())).not.toContain(secret.slice(6));
  await service.stop('SIGTERM');
  const other = await sandbox.service({ ...env, SECRET_KEY: 'another key of this test' });
  await waitUntil(() => other.err().includes('secrets of webhooks are encrypted under another SECRET_KEY'));
  const tested = await other.send('POST', '/webhooks/secretive@demo/test/');
  expect([tested.status, tested.body]).toEqual([
    503,
    {
      code: 5032,
      message: 'exception',
      details: { message: 'the secret of the webhook was made under another SECRET_KEY; it opens again with that key' },
    },
  ]);
  await other.stop('SIGTERM');
  await receiver.close();
});
