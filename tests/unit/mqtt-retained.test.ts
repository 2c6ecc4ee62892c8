import { expect, it } from '@jest/globals';
import type { StoredNode } from '../../src/db/batching/loader.js';
import { createIdGenerator } from '../../src/db/ids.js';
import { openRetainedMessages } from '../../src/mqtt/sessions/retained-messages.js';

const newId = createIdGenerator(Date.now);
const half = Buffer.alloc(8 * 1024 * 1024 - 100);

it.each([
  ['gives the room of messages of deleted devices to others', false, true, ['lamp@demo/status', 'full']],
  ['keeps all of them while the database fails', true, false, ['pump@demo/status', 'lamp@demo/status']],
])('an account whose retained messages have no room %s', async (_what, isDown, isStored, topics) => {
  const devices = new Map(['pump@demo', 'lamp@demo'].map((id) => [id, { _id: newId() } as StoredNode]));
  let isFailing = false;
  const retained = await openRetainedMessages((async function* () {})(), {
    write: () => Promise.resolve(),
    findDevice: async (id) => (isFailing ? Promise.reject(new Error('down')) : devices.get(id)),
    now: () => 0,
    failed: () => undefined,
  });
  for (const [id, { _id: parent }] of devices)
    expect(await retained.store({ topic: `${id}/status`, payload: half, qos: 0, parent })).toBe(true);
  if (!isDown) devices.delete('pump@demo');
  isFailing = isDown;
  expect(await retained.store({ topic: 'full', payload: half, qos: 0 })).toBe(isStored);
  isFailing = false;
  const found: string[] = [];
  for await (const { topic } of retained.find(['#'])) found.push(topic);
  expect(found).toEqual(topics);
});
