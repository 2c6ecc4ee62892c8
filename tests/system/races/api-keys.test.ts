import { EventEmitter, once } from 'node:events';
import { afterAll, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import type { Database } from '../../../src/db/database.js';
import { issueKey, openKeyring, revokeByOperator } from '../../../src/objects/api-keys.js';
import { startTestService } from '../../support/service.js';

const service = await startTestService();
afterAll(() => service.stop());

/** A database that counts look-ups of keys, and answers each after `hold` has resolved. */
function observed(hold: () => Promise<void>): { db: Database; lookUps: () => number } {
  let count = 0;
  const db: Database = {
    ...service.db,
    collection<T extends mongo.Document>(plural: string) {
      const collection = service.db.collection<T>(plural);
      if (plural !== 'apikeys') return collection;
      return new Proxy(collection, {
        get(target, name) {
          const member = Reflect.get(target, name);
          if (name !== 'findOne') return typeof member === 'function' ? member.bind(target) : member;
          return async (...args: Parameters<typeof target.findOne>) => {
            count++;
            const found = await target.findOne(...args);
            await hold();
            return found;
          };
        },
      });
    },
  };
  return { db, lookUps: () => count };
}

it('does not accept a key that is revoked while it is being looked up', async () => {
  const { id, key } = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'write' }, 0);
  const events = new EventEmitter();
  const found = once(events, 'found');
  const released = once(events, 'released');
  const { db } = observed(async () => {
    events.emit('found');
    await released;
  });
  const keyring = openKeyring(db);
  const lookUp = keyring.find(key, 1);
  await found;
  await revokeByOperator(service.db, id);
  await keyring.invalidate(id);
  events.emit('released');
  expect(await lookUp).toMatchObject({ account: 'acme' });
  expect(await keyring.find(key, 1)).toBeUndefined();
});

it('looks an unknown key up once a second, and a known one every 4 s', async () => {
  const { key } = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'write' }, 0);
  const { db, lookUps } = observed(async () => undefined);
  const keyring = openKeyring(db);
  for (const now of [10, 10.5, 10.9]) expect(await keyring.find('x'.repeat(43), now)).toBeUndefined();
  expect(lookUps()).toBe(1);
  expect(await keyring.find('x'.repeat(43), 11)).toBeUndefined();
  expect(lookUps()).toBe(2);
  for (const now of [10, 12, 13.9]) expect(await keyring.find(key, now)).toMatchObject({ account: 'acme' });
  expect(lookUps()).toBe(3);
  await keyring.find(key, 14);
  expect(lookUps()).toBe(4);
});
