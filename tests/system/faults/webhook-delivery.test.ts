import { afterEach, describe, expect, it } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { useTestService } from '../../support/expect-status.js';
import { collectGarbage } from '../../support/garbage.js';
import { logEvents, readTimeOfChange } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { answerWith, type Receiver, startReceiver } from '../../support/receiver.js';
import { pathOf } from '../../support/service.js';

const logged: (Record<string, unknown> & { message: string })[] = [];
const note = (fields: object, message: string) => void logged.push({ message, ...fields });
const ctx = await useTestService({
  webhook_allow_nets: ['127.0.0.0/8'],
  deliver: true,
  log: { info: note, warn: note, error: note },
});
let number = 0;
/** Numbers the objects of events over all tests of the file. */
let nextEvent = 1;
const receivers: Receiver[] = [];

afterEach(async () => {
  for (const { id_developer } of (await ctx.api.get('/webhooks/')).body.result)
    await ctx.api.delete(pathOf('webhooks', id_developer));
  await Promise.all(receivers.splice(0).map((receiver) => receiver.close()));
});

async function receiver(...args: Parameters<typeof startReceiver>): Promise<Receiver> {
  const started = await startReceiver(...args);
  receivers.push(started);
  return started;
}

/** Creates a webhook; returns its path and secret. */
async function createHook(url: string, fields: object = {}): Promise<{ path: string; secret: string; id: string }> {
  const name = `hook ${++number}`;
  const created = await ctx.api.post('/webhooks/', { name, url, types: ['*'], ...fields });
  expect([created.status, created.body.code]).toEqual([200, 2001]);
  return { path: pathOf('webhooks', `${name}@acme`), secret: created.body.details.secret, id: `${name}@acme` };
}

async function log(...events: Parameters<typeof logEvents>[1]): Promise<string[]> {
  const ids = await logEvents(ctx.service, events, { from: nextEvent, time: await readTimeOfChange(ctx.service.db) });
  nextEvent += events.length;
  return ids;
}

const deliveriesOf = async (path: string) => (await ctx.api.get(`${path}deliveries/`)).body.result;

describe('a delivery', () => {
  it('is the event as it is listed, signed, in order', async () => {
    const target = await receiver();
    const { secret, path } = await createHook(target.url);
    const ids = await log(
      { type: 'device.created', id_group: 'hall@acme' },
      { type: 'device.updated', data: { version: 1, changed: ['name'], 'a.b': '</x>' } },
      { type: 'topic.created' },
    );
    await waitUntil(() => target.received.length === 3);
    const listed = await ctx.api.get('/events/?order=1');
    expect(target.received.map(({ body }) => body)).toEqual(
      listed.body.result.slice(-3).map((event: object) => JSON.stringify(event)),
    );
    expect(target.events().map(({ id }) => id)).toEqual(ids);
    for (const { body, headers } of target.received) {
      const verified = new Webhook(secret).verify(body, headers as Record<string, string>);
      expect(verified).toEqual(JSON.parse(body));
      expect(headers).toMatchObject({ 'content-type': 'application/json', 'webhook-id': JSON.parse(body).id });
    }
    await waitUntil(async () => (await deliveriesOf(path)).length === 3);
    expect(await deliveriesOf(path)).toEqual(
      ids.toReversed().map((event, index) => ({
        event,
        type: ['topic.created', 'device.updated', 'device.created'][index],
        at: expect.any(Number),
        attempt: 1,
        status: 204,
        took_ms: expect.any(Number),
      })),
    );
  });

  it('is of the types and objects that the webhook selects', async () => {
    const target = await receiver();
    const id_group = await ctx.fixtures.group();
    await createHook(target.url, { types: ['device.', 'topic.created'], id_group });
    const ids = await log(
      { type: 'device.created', id_group },
      { type: 'device.created' },
      { type: 'device.created', id_group: 'other@acme' },
      { type: 'topic.created', id_group, id_asset: 'mast@acme' },
      { type: 'topic.deleted', id_group },
      { type: 'devicelike.created', id_group },
    );
    await logEvents(ctx.service, [{ id_group }], { account: 'globex', from: nextEvent++ });
    const last = await log({ type: 'device.deleted', id_group });
    await waitUntil(() => target.received.length >= 3);
    expect(target.events().map(({ id }) => id)).toEqual([ids[0], ids[3], last[0]]);
  });

  it('begins with the events after the creation, and after each enabling', async () => {
    const target = await receiver();
    await log({});
    const { path } = await createHook(target.url);
    const first = await log({});
    await waitUntil(() => target.received.length === 1);
    await ctx.api.put(path, { enabled: false });
    await log({});
    await ctx.api.put(path, { enabled: true });
    const second = await log({});
    await waitUntil(() => target.received.length === 2);
    // a change of anything else keeps the place in the log
    await ctx.api.put(path, { enabled: true, description: 'x' });
    const third = await log({});
    await waitUntil(() => target.received.length === 3);
    expect(target.events().map(({ id }) => id)).toEqual([...first, ...second, ...third]);
  });

  it('is signed by the former secret too, for 24 h', async () => {
    const target = await receiver();
    const { path, secret } = await createHook(target.url);
    const made = await ctx.api.post(`${path}secret/`);
    const next: string = made.body.details.secret;
    const headerOf = (index: number, name: string) => String(target.received[index]?.headers[name]);
    const verifies = (key: string, index: number) => {
      // the clock of the service runs ahead of that of the library
      const at = new Date(Number(headerOf(index, 'webhook-timestamp')) * 1000);
      const text = target.received[index]?.body ?? '';
      const expected = new Webhook(key).sign(headerOf(index, 'webhook-id'), at, text);
      return headerOf(index, 'webhook-signature').split(' ').includes(expected);
    };
    await ctx.api.post(`${path}test/`);
    expect([verifies(secret, 0), verifies(next, 0)]).toEqual([true, true]);
    const [first] = target.received;
    for (const key of [secret, next])
      expect(new Webhook(key).verify(first?.body ?? '', first?.headers as Record<string, string>)).toEqual(
        target.events()[0],
      );
    ctx.service.advance(86_399);
    await ctx.api.post(`${path}test/`);
    expect([verifies(secret, 1), verifies(next, 1)]).toEqual([true, true]);
    ctx.service.advance(1);
    await ctx.api.post(`${path}test/`);
    expect([verifies(secret, 2), verifies(next, 2)]).toEqual([false, true]);
  });
});

/** Advances the clock to a retry. */
function advanceTo(time: number): void {
  ctx.service.advance(Math.max(0, time - ctx.service.now()) + 0.001);
}

describe('a failed delivery', () => {
  it('is repeated after 5 s, 30 s, 5 min, 30 min, 2 h, 8 h and 24 h, then dropped', async () => {
    const target = await receiver(0, answerWith(500));
    const { path } = await createHook(target.url, { types: ['device.'] });
    const probe = await receiver();
    await createHook(probe.url, { types: ['log.gap'] });
    const [event] = await log({});
    const pauses: number[] = [];
    for (let attempt = 1; attempt <= 8; attempt++) {
      await waitUntil(async () => (await deliveriesOf(path)).length === attempt);
      const [latest] = await deliveriesOf(path);
      expect(latest).toEqual({
        event,
        type: 'device.created',
        at: ctx.service.now(),
        attempt,
        status: 500,
        error: 'answered with status 500',
        took_ms: expect.any(Number),
        ...(attempt < 8 && { next_at: expect.any(Number) }),
      });
      if (attempt === 8) break;
      pauses.push(latest.next_at - ctx.service.now());
      ctx.service.advance(latest.next_at - ctx.service.now() - 0.01);
      await log({ type: 'log.gap' });
      await waitUntil(() => probe.received.length === attempt);
      // nothing was sent before the time
      expect(target.received).toHaveLength(attempt);
      advanceTo(latest.next_at);
    }
    const schedule = [5, 30, 300, 1800, 7200, 28_800, 86_400];
    expect(pauses).toHaveLength(schedule.length);
    for (const [index, pause] of pauses.entries()) {
      expect(pause).toBeGreaterThanOrEqual((schedule[index] ?? 0) * 0.9 - 0.01);
      expect(pause).toBeLessThanOrEqual((schedule[index] ?? 0) * 1.1 + 0.01);
    }
    expect(await ctx.service.db.collection('webhook_retries').countDocuments({ event })).toBe(0);
  });

  it('ends with the first success', async () => {
    const target = await receiver(0, answerWith(503));
    const { path } = await createHook(target.url);
    await log({});
    await waitUntil(async () => (await deliveriesOf(path)).length === 1);
    target.answer(undefined);
    advanceTo((await deliveriesOf(path))[0].next_at);
    await waitUntil(async () => (await deliveriesOf(path)).length === 2);
    expect((await deliveriesOf(path))[0]).toMatchObject({ attempt: 2, status: 204 });
    expect(target.received[0]?.body).toBe(target.received[1]?.body);
    expect(await ctx.service.db.collection('webhook_retries').countDocuments({})).toBe(0);
  });

  it('does not follow redirects', async () => {
    const elsewhere = await receiver();
    const target = await receiver(0, answerWith(307, { Location: elsewhere.url }));
    const { path } = await createHook(target.url);
    await log({});
    await waitUntil(async () => (await deliveriesOf(path)).length === 1);
    expect((await deliveriesOf(path))[0]).toMatchObject({
      status: 307,
      error: 'redirects elsewhere, which is not followed; give the final address',
    });
    expect(elsewhere.received).toEqual([]);
  });

  it('is sent again by hand, which ends its retries', async () => {
    const target = await receiver(0, answerWith(500));
    const { path } = await createHook(target.url);
    const [event] = await log({});
    await waitUntil(async () => (await deliveriesOf(path)).length === 1);
    const failed = await ctx.api.post(`${path}deliveries/${event}/retry/`);
    expect(failed.body.details).toMatchObject({ event, attempt: 2, status: 500, error: 'answered with status 500' });
    expect(await ctx.service.db.collection('webhook_retries').countDocuments({ event })).toBe(1);
    target.answer(undefined);
    const sent = await ctx.api.post(`${path}deliveries/${event}/retry/`);
    expect([sent.status, sent.body]).toEqual([
      200,
      {
        code: 2001,
        message: 'Webhook event sent',
        details: {
          event,
          type: 'device.created',
          at: ctx.service.now(),
          attempt: 3,
          status: 204,
          took_ms: expect.any(Number),
        },
      },
    ]);
    expect(await ctx.service.db.collection('webhook_retries').countDocuments({ event })).toBe(0);
    expect((await deliveriesOf(path)).map(({ attempt }: { attempt: number }) => attempt)).toEqual([3, 2, 1]);
  });
});

describe('a webhook', () => {
  it('is disabled by 410, and starts anew', async () => {
    const target = await receiver(0, answerWith(500));
    const { path, id } = await createHook(target.url);
    await log({}, {});
    await waitUntil(async () => (await deliveriesOf(path)).length === 2);
    target.answer(answerWith(410));
    await log({});
    await waitUntil(async () => (await ctx.api.get(path)).body.enabled === false);
    const shown = (await ctx.api.get(path)).body;
    expect(shown).toMatchObject({ enabled: false, version: 1, updater: 'alice' });
    const stored = await ctx.service.db.collection('webhooks').findOne({ id_developer: id });
    expect(stored?.last_change).toBe('{"disabled":true}');
    await waitUntil(async () => (await ctx.service.db.collection('webhook_retries').countDocuments({})) === 0);
    const before = target.received.length;
    await log({});
    target.answer(undefined);
    await ctx.api.put(path, { enabled: true });
    const [event] = await log({});
    await waitUntil(() => target.received.length > before);
    expect(
      target
        .events()
        .slice(before)
        .map((one) => one.id),
    ).toEqual([event]);
  });

  it('is disabled after 3 days without one success', async () => {
    const target = await receiver(0, answerWith(500));
    const { path } = await createHook(target.url);
    const fail = async (count: number) => {
      await log({});
      await waitUntil(async () => (await deliveriesOf(path)).length === count);
      await ctx.service.db.collection('webhook_retries').deleteMany({});
    };
    await fail(1);
    ctx.service.advance(2 * 86_400);
    target.answer(undefined);
    await fail(2);
    target.answer(answerWith(500));
    await fail(3);
    ctx.service.advance(3 * 86_400 - 1);
    await fail(4);
    expect((await ctx.api.get(path)).body.enabled).toBe(true);
    ctx.service.advance(1);
    await fail(5);
    await waitUntil(async () => (await ctx.api.get(path)).body.enabled === false);
  });

  it('is not disabled after 3 days if a test or a retry by hand succeeds', async () => {
    const target = await receiver(0, answerWith(500));
    const { path } = await createHook(target.url);
    const fail = async () => {
      const count = (await deliveriesOf(path)).length;
      await log({});
      await waitUntil(async () => (await deliveriesOf(path)).length === count + 1);
      await ctx.service.db.collection('webhook_retries').deleteMany({});
    };
    await fail();
    ctx.service.advance(2 * 86_400);
    target.answer(undefined);
    expect((await ctx.api.post(`${path}test/`)).body.details.error).toBeUndefined();
    target.answer(answerWith(500));
    ctx.service.advance(2 * 86_400);
    await fail();
    expect((await ctx.api.get(path)).body.enabled).toBe(true);
  });

  it('that hangs delays no other, and its first attempts stay in order', async () => {
    const slow = await receiver(0, () => undefined);
    const fast = await receiver();
    const hooks = [await createHook(slow.url), await createHook(fast.url)];
    const ids = await log(...Array.from({ length: 30 }, () => ({})));
    await waitUntil(() => fast.received.length === 30);
    collectGarbage();
    expect(fast.events().map(({ id }) => id)).toEqual(ids);
    // each of its attempts takes 10 s
    expect(slow.received.length).toBeLessThan(5);
    expect(slow.events().map(({ id }) => id)).toEqual(ids.slice(0, slow.received.length));
    await waitUntil(async () => (await deliveriesOf(hooks[0]?.path ?? '')).length > 0);
    expect((await deliveriesOf(hooks[0]?.path ?? '')).at(-1)).toMatchObject({
      event: ids[0],
      error: 'did not answer in time',
    });
  });

  it('whose receiver does not end the body of its answer has its status', async () => {
    const statuses = [200, 500];
    const target = await receiver(0, (response) => response.writeHead(statuses.shift() ?? 204).write('.'));
    const { path } = await createHook(target.url);
    const test = async () => (await ctx.api.post(`${path}test/`)).body.details;
    const [taken, failed] = [await test(), await test()];
    expect([taken.status, taken.error, failed.error]).toEqual([200, undefined, 'answered with status 500']);
  });

  it('that is deleted leaves nothing', async () => {
    const target = await receiver(0, answerWith(500));
    const { path, id } = await createHook(target.url);
    await log({}, {});
    await waitUntil(async () => (await deliveriesOf(path)).length === 2);
    const count = async () =>
      Promise.all(
        ['webhook_deliveries', 'webhook_retries', 'webhook_states'].map((name) =>
          ctx.service.db.collection(name).countDocuments({ webhook: id }),
        ),
      );
    expect(await count()).toEqual([2, 2, 1]);
    const { code } = (await ctx.api.delete(path)).body;
    // what takes longer than 5 s, as on a busy machine, continues
    if (code === 5031) await waitUntil(async () => (await count()).every((left) => left === 0));
    else expect([code, await count()]).toEqual([2004, [0, 0, 0]]);
    expect((await ctx.api.get(`${path}deliveries/`)).status).toBe(404);
  });

  it('keeps its last 1,000 attempts', async () => {
    const target = await receiver();
    const { path } = await createHook(target.url);
    const ids = await log(...Array.from({ length: 1005 }, () => ({})));
    await waitUntil(() => target.received.length === 1005, 120_000);
    const list = async () => (await ctx.api.get(`${path}deliveries/?max=2`)).body;
    await waitUntil(async () => (await list()).result[0].event === ids.at(-1));
    const { total_documents, result } = await list();
    expect([total_documents, result.map(({ event }: { event: string }) => event)]).toEqual([
      1000,
      [ids[1004], ids[1003]],
    ]);
    const oldest = (await ctx.api.get(`${path}deliveries/?offset=999`)).body.result;
    expect(oldest.map(({ event }: { event: string }) => event)).toEqual([ids[5]]);
    const exported = await ctx.api.get(`${path}deliveries/?format=csv&fields=event,attempt&max=1`);
    expect(exported.text).toBe(`event,attempt\r\n${ids[1004]},1\r\n`);
    expect(target.events().map(({ id }) => id)).toEqual(ids);
  });

  it('whose receiver is slow answers a test within 5 s', async () => {
    const target = await receiver(0, () => undefined);
    const { path } = await createHook(target.url);
    const testing = ctx.api.post(`${path}test/`);
    await waitUntil(() => target.received.length === 1);
    collectGarbage();
    const tested = await testing;
    expect([tested.status, tested.body.details]).toMatchObject([200, { error: 'did not answer in time' }]);
    // other attempts have 10 s
    expect(tested.body.details.took_ms).toBeLessThan(10_000);
  });

  it('logs a line when it begins to fail, and one when it succeeds again, with its names', async () => {
    const target = await receiver(0, answerWith(500));
    const { path, id } = await createHook(`${target.url}?token=s3cret`);
    const linesOfHook = () => logged.filter(({ webhook }) => webhook === id);
    const names = { account: 'acme', webhook: id, receiver: `127.0.0.1:${target.port}` };
    const [event] = await log({}, {});
    await waitUntil(async () => (await deliveriesOf(path)).length === 2);
    const error = 'answered with status 500';
    const begun = { message: 'webhook fails; its events are sent again', ...names, error, event, attempt: 1 };
    expect(linesOfHook()).toEqual([begun]);
    const metrics = async () => (await ctx.service.clientWith(undefined).get('/metrics')).text;
    await waitUntil(async () => (await metrics()).includes('webhooks_failing{account="acme"} 1'));
    target.answer(undefined);
    await log({}, {});
    await waitUntil(async () => (await deliveriesOf(path)).length === 4);
    expect(linesOfHook()).toEqual([begun, { message: 'webhook succeeds again', ...names }]);
    await waitUntil(async () => !(await metrics()).includes('webhooks_failing{'));
  });

  it('reports attempts in the metrics', async () => {
    const target = await receiver(0, answerWith(500));
    const { path } = await createHook(target.url);
    await log({});
    await waitUntil(async () => (await deliveriesOf(path)).length === 1);
    const { text } = await ctx.service.clientWith(undefined).get('/metrics');
    expect(text).toMatch(/^webhook_deliveries_total\{outcome="failed"\} [1-9]/m);
    expect(text).toMatch(/^webhook_deliveries_total\{outcome="dropped"\} 1$/m);
    expect(text).toMatch(/^webhook_oldest_undelivered_seconds /m);
  });
});
