import { beforeEach, expect, it } from '@jest/globals';
import { type RunningService, useSandbox, waitUntil } from '../../support/process.js';

const sandbox = useSandbox('each test');
let service: RunningService;
let streams: string;

beforeEach(async () => {
  service = await sandbox.service({ NODE_OPTIONS: '--max-old-space-size=512' });
  const id_project = await service.create('projects', { name: 'p', id_customer: 'c' });
  const id_service = await service.create('services', { name: 's', id_project });
  const id_group = await service.create('groups', { name: 'g', id_service });
  streams = `/devices/${encodeURIComponent(await service.create('devices', { name: 'd', type: 't', id_group }))}/streams/`;
});

/** Sends the same body in `count` requests at once. @returns how often each code was the answer */
async function sendAtOnce(count: number, body: string): Promise<Record<number, number>> {
  const codes: Record<number, number> = {};
  const replies = await Promise.all(Array.from({ length: count }, () => service.send('POST', streams, body)));
  for (const { body } of replies) codes[body.code] = (codes[body.code] ?? 0) + 1;
  return codes;
}

/** An array of `length` streams with lists of so many empty objects: the most memory for the least text. */
function streamsOf(length: number, objects: number): string {
  return `[${Array(length)
    .fill(`{"data":{"a":[${Array(objects).fill('{}').join()}]}}`)
    .join()}]`;
}

it('answers 12 bodies of 1 MiB with 349,000 objects each, and 12 at the limit, with a heap of 512 MB', async () => {
  const tooMany = streamsOf(16, 21_800);
  expect(tooMany.length).toBeLessThan(1024 * 1024);
  // on a slow machine some run out of time while they are stored (5031) or wait for their turn (5033)
  for (const [code, body] of [
    [4003, tooMany],
    [2001, streamsOf(10, 4_994)],
  ] as const) {
    const codes = await sendAtOnce(12, body);
    expect(Object.keys(codes).filter((each) => ![`${code}`, '5031', '5033'].includes(each))).toEqual([]);
    await waitUntil(async () => (await sendAtOnce(1, body))[code] === 1);
  }
  expect((await service.send('GET', '/healthz')).status).toBe(200);
});

it('answers 200 bodies at the limit with a heap of 512 MB', async () => {
  const codes = await sendAtOnce(200, streamsOf(10, 4_994));
  expect(Object.keys(codes).filter((code) => !['2001', '5031', '5033'].includes(code))).toEqual([]);
  expect((await service.send('GET', '/healthz')).status).toBe(200);
});
