import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { confirmReads } from '../../../src/db/raw-find.js';
import { startReplicaSet } from '../../support/replica-set.js';

const folder = await mkdtemp(join(tmpdir(), 'confirmed-reads-'));
const set = await startReplicaSet({ folder, settings: { electionTimeoutMillis: 30_000 } });
const client = new mongoose.mongo.MongoClient(set.uri, { writeConcern: { w: 'majority' } });

afterAll(async () => {
  await client.close();
  await set.stop();
  await rm(folder, { recursive: true, force: true });
});

it('confirms a read once a majority has what was read', async () => {
  const alarms = client.db().collection('alarms');
  await confirmReads(alarms);
  const primary = await set.findPrimary();
  const others = set.members.filter((member) => member !== primary);
  for (const member of others) await member.freeze();
  await alarms.insertOne({ state: 'active' }, { writeConcern: { w: 1 } });
  const confirmed = confirmReads(alarms).then(() => 'confirmed');
  expect(await Promise.race([confirmed, sleep(1000, 'waiting')])).toBe('waiting');
  for (const member of others) member.thaw();
  expect(await confirmed).toBe('confirmed');
});
