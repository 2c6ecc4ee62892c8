import { expect, it } from '@jest/globals';
import type { StoredEvent } from '../../../src/resources/event.js';
import { useTestService } from '../../support/expect-status.js';
import { createAppender } from '../../support/logged-events.js';
import { pathOf } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';

const ctx = await useTestService();
const append = createAppender(ctx);
const send = (device: string, streams: object | object[]) =>
  ctx.api.post(pathOf('devices', device, 'streams'), streams);

it('resumes a feed of events behind an id without gap or repetition, in 100 tries', async () => {
  const { headers } = await createKey(ctx.service);
  const url = `${ctx.service.url}/events/live/`;
  const [start] = await append({});
  const appended: StoredEvent[] = [];
  let isDone = false;
  const appending = (async () => {
    while (!isDone) appended.push(...(await append(...Array.from({ length: 1 + (appended.length % 9) }, () => ({})))));
  })();
  const numbers: number[] = [];
  let feed = await follow(`${url}?after=${start?._id}`, headers);
  for (let attempt = 0; attempt < 100; attempt++) {
    await feed.received(1 + (attempt % 50));
    await feed.close();
    numbers.push(...feed.messages.map(({ data }) => data.data.n));
    // the header is newer than the address
    feed = await follow(`${url}?after=${start?._id}`, { ...headers, 'Last-Event-ID': feed.lastId() });
  }
  isDone = true;
  await appending;
  numbers.push(...(await feed.received(appended.length - numbers.length)).map(({ data }) => data.data.n));
  await feed.close();
  expect(numbers).toEqual(appended.map(({ data }) => (data as { n: number }).n));
});

it('resumes a feed of streams behind an id without gap or repetition, in 100 tries', async () => {
  const { service, fixtures } = ctx;
  const device = await fixtures.device();
  const other = await fixtures.device();
  const { headers } = await createKey(service);
  const url = `${service.url}${pathOf('devices', device, 'streams')}live/`;
  let sent = 0;
  let isDone = false;
  const sending = (async () => {
    while (!isDone) {
      const batch = Array.from({ length: 1 + (sent % 7) }, () => ({ data: { n: sent++ } }));
      const replies = await Promise.all([send(device, batch), send(other, { data: { n: -1 } })]);
      expect(replies.map(({ body }) => body.code)).toEqual([2001, 2001]);
    }
  })();
  let first = await follow(url, headers);
  const numbers: number[] = [];
  for (let attempt = 0; attempt < 100; attempt++) {
    const messages = [...(await first.received(1 + (attempt % 5)))];
    await first.close();
    messages.push(...first.messages.slice(messages.length));
    numbers.push(...messages.map(({ data }) => data.data.n));
    first = await follow(url, { ...headers, 'Last-Event-ID': first.lastId() });
    expect(first.status).toBe(200);
  }
  isDone = true;
  await sending;
  const rest = sent - (numbers[0] ?? 0) - numbers.length;
  numbers.push(...(await first.received(rest)).map(({ data }) => data.data.n));
  await first.close();
  expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, at) => (numbers[0] ?? 0) + at));
  expect(numbers.at(-1)).toBe(sent - 1);
});
