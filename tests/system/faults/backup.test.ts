import { access, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import mongoose, { type mongo } from 'mongoose';
import { openSnapshot } from '../../../src/db/snapshot.js';
import { connectTool } from '../../../src/db/tool-connection.js';
import { silentLog } from '../../../src/lib/log.js';
import { findMongod } from '../../../src/mongod/binary.js';
import { startEmbedded } from '../../../src/mongod/embedded.js';
import { type RunningService, useSandbox, waitUntil } from '../../support/process.js';
import { runTool } from '../../support/tools.js';

const sandbox = useSandbox('each test');
const dataOf = (name: string) => join(sandbox.folder, name);

async function stop(service: RunningService): Promise<void> {
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
}

/** Counts what the service acknowledges while clients write until `stop`. */
function startWriters(service: RunningService, id_service: string, devices: readonly [string, string]) {
  const acknowledged = { pairs: 0, groups: [] as string[] };
  let isStopped = false;
  // one stream after the other, of the first device and then of the second
  const streams = async () => {
    for (let seq = 0; !isStopped; seq++) {
      for (const device of devices) {
        const path = `/devices/${encodeURIComponent(device)}/streams/?on_conflict=skip`;
        const send = () => service.send('POST', path, { at: 1000 + seq, data: { seq } });
        // what is answered 503 may be stored or not
        await waitUntil(async () => (await send()).body.code === 2001);
      }
      acknowledged.pairs = seq + 1;
    }
  };
  const create = (plural: string, body: object) =>
    service.create(plural, body).catch((error: Error) => {
      // the next one is created instead
      if (!error.message.includes('"code":503')) throw error;
    });
  // groups with a device; every second one is deleted again
  const groups = async (name: string) => {
    for (let number = 0; !isStopped; number++) {
      const id_group = await create('groups', { name: `${name} ${number}`, id_service });
      const device = id_group && (await create('devices', { name: `${name} ${number}`, type: 'x', id_group }));
      if (!id_group || !device) continue;
      await service.send('POST', `/devices/${encodeURIComponent(device)}/streams/`, { data: { number } });
      if (number % 2 === 0) acknowledged.groups.push(id_group);
      else await service.send('DELETE', `/groups/${encodeURIComponent(id_group)}/`);
    }
  };
  const writers = [streams(), groups('A'), groups('B')];
  return {
    acknowledged,
    async stop() {
      isStopped = true;
      await Promise.all(writers);
    },
  };
}

/** Finds documents whose parent does not exist. */
async function findDangling(db: mongo.Db): Promise<unknown[]> {
  const parents = { services: 'projects', groups: 'services', devices: 'groups', streams: 'devices' };
  const dangling: unknown[] = [];
  for (const [plural, from] of Object.entries(parents)) {
    const lookup = { from, localField: 'parent', foreignField: '_id', as: 'found' };
    const stages = [{ $lookup: lookup }, { $match: { found: [] } }, { $project: { device: 1, name: 1 } }];
    dangling.push(...(await db.collection(plural).aggregate(stages).toArray()));
  }
  return dangling;
}

it('creates nothing where there is no database', async () => {
  const file = join(sandbox.folder, 'fleet.backup');
  const tools: [string, string[]][] = [
    ['backup', [file]],
    ['keys', ['list', '--account', 'demo']],
    ['keys', ['revoke', 'K']],
    ['keys', ['rotate-secret']],
  ];
  for (const DATA_DIR of [dataOf('data'), dataOf('absent')])
    for (const [tool, args] of tools)
      expect(await runTool(tool, args, { DATA_DIR })).toEqual({
        code: 1,
        out: '',
        complaints: [`${tool === 'backup' ? 'backup: ' : ''}DATA_DIR ${DATA_DIR} has no database`],
      });
  expect(await readdir(sandbox.folder, { recursive: true })).toEqual(['data']);
});

it('waits until a database that has just started tells its time', async () => {
  const print = () => undefined;
  const { path } = await findMongod({ env: process.env, print });
  const program = join(sandbox.folder, 'without-keys');
  const failpoint = 'failpoint.disableKeyGeneration={"mode":"alwaysOn"}';
  const parameters = `--setParameter enableTestCommands=1 --setParameter '${failpoint}'`;
  await writeFile(program, `#!/bin/sh\nexec ${path} "$@" ${parameters}\n`, { mode: 0o755 });
  const env = { MONGOMS_SYSTEM_BINARY: program };
  const embedded = await startEmbedded({ dataDir: dataOf('data'), env, log: silentLog, print });
  const connection = await connectTool(embedded.uri);
  const { client, db } = connection;
  await db.collection('notes').insertOne({ _id: 1 as never });
  expect(await db.command({ ping: 1 })).not.toHaveProperty('operationTime');
  const opening = openSnapshot(connection);
  await client.db('admin').command({ configureFailPoint: 'disableKeyGeneration', mode: 'off' });
  const snapshot = await opening;
  const read: unknown[] = [];
  for await (const documents of snapshot.read('notes'))
    for (const document of documents) read.push(mongoose.mongo.BSON.deserialize(document));
  expect(read).toEqual([{ _id: 1 }]);
  await snapshot.close();
  await connection.close();
  await embedded.stop();
});

it('has the events of all changes before, also after a kill -9', async () => {
  const service = await sandbox.service();
  const names = Array.from({ length: 20 }, (_, number) => `P${number}`);
  await Promise.all(names.map((name) => service.create('projects', { name, id_customer: 'c' })));
  service.kill('SIGKILL');
  await service.ended;
  const file = join(sandbox.folder, 'fleet.backup');
  expect((await runTool('backup', [file], { DATA_DIR: dataOf('data') })).out).not.toContain('take too long');
  expect((await runTool('restore', [file], { DATA_DIR: dataOf('other') })).code).toBe(0);
  const restored = await sandbox.service({ DATA_DIR: dataOf('other') });
  const { body } = await restored.send('GET', '/events/?type=project.created', undefined, {
    'service.apikey': service.key,
  });
  expect(body.result.map(({ id_developer }: { id_developer: string }) => id_developer).sort()).toEqual(
    names.map((name) => `${name}@demo`).sort(),
  );
});

it('backs up one moment of a service under load, which another folder restores', async () => {
  const service = await sandbox.service();
  const id_project = await service.create('projects', { name: 'P', id_customer: 'c' });
  const id_service = await service.create('services', { name: 'S', id_project });
  const id_group = await service.create('groups', { name: 'G', id_service });
  const first = await service.create('devices', { name: 'First', type: 'x', id_group });
  const second = await service.create('devices', { name: 'Second', type: 'x', id_group });
  const stored = {
    text: 'ä',
    $ref: 'a',
    $id: 1,
    'a.b': { _bsontype: 'Long', $numberLong: '1' },
    big: 9007199254740991,
  };
  const odd = await service.create('devices', { name: 'Odd', type: 'x', id_group, properties: { stored } });
  const file = join(sandbox.folder, 'fleet.backup');
  const writers = startWriters(service, id_service, [first, second]);
  while (writers.acknowledged.groups.length < 5) await new Promise((resolve) => setImmediate(resolve));

  const { pairs, groups } = structuredClone(writers.acknowledged);
  const backup = await runTool('backup', [file], { DATA_DIR: dataOf('data') });
  expect(backup).toEqual({ code: 0, out: expect.stringContaining(' 1 keys, '), complaints: [] });
  expect(backup.out).toContain('SECRET_KEY is not in the file');
  const atEnd = writers.acknowledged.pairs;
  await writers.stop();
  const before = (await service.send('GET', `/devices/${encodeURIComponent(odd)}/`)).body;
  await stop(service);
  expect((await stat(file)).mode & 0o777).toBe(0o600);

  const restore = await runTool('restore', [file], { DATA_DIR: dataOf('other') });
  expect(restore).toEqual({ code: 0, out: expect.stringMatching(/^restored the backup of 20/), complaints: [] });
  const restored = await sandbox.service({ DATA_DIR: dataOf('other'), BOOTSTRAP_API_KEY: service.key });
  const db = sandbox.database(await sandbox.embeddedUri('other'));
  const seqs = async (device: string) => {
    const found = await db.collection('streams').find({ '_id.device': device }).sort({ '_id.n': 1 }).toArray();
    return found.map(({ data }) => data.seq);
  };
  const [firstSeqs, secondSeqs] = [await seqs(first), await seqs(second)];
  // every acknowledged stream, and no later one without all earlier ones
  expect(secondSeqs.length).toBeGreaterThanOrEqual(pairs);
  expect(secondSeqs.length).toBeLessThanOrEqual(atEnd + 1);
  expect(secondSeqs).toEqual(Array.from(secondSeqs, (_, seq) => seq));
  expect(firstSeqs).toEqual(Array.from(firstSeqs, (_, seq) => seq));
  expect([0, 1]).toContain(firstSeqs.length - secondSeqs.length);
  const present = (await db.collection('groups').find().toArray()).map(({ id_developer }) => id_developer);
  expect(present).toEqual(expect.arrayContaining(groups));
  expect(await findDangling(db)).toEqual([]);
  expect((await restored.send('GET', `/devices/${encodeURIComponent(odd)}/`)).body).toEqual(before);
  // processes are not restored, and nothing of the restore is left
  expect((await db.listCollections().toArray()).filter(({ name }) => /^restoring/.test(name))).toEqual([]);
  expect(await db.collection('maintenance').findOne({ _id: 'restore' as never })).toBeNull();
  const indexes = await db.collection('devices').indexes();
  expect(indexes.filter(({ unique }) => unique).map(({ key }) => key)).toEqual([{ account: 1, id_developer: 1 }]);
  await stop(restored);
});

it('takes SECRET_KEY along under a passphrase', async () => {
  const storage = '/external/local/user/alice/';
  const files = join(sandbox.folder, 'files');
  await mkdir(join(files, 'demo', 'reports'), { recursive: true });
  await writeFile(join(files, 'demo', 'reports', 'a.txt'), 'a');
  const service = await sandbox.service({ FILESTORE_LOCAL_ROOT: files });
  const { key } = service;
  expect((await service.send('PUT', storage, { path: 'reports' })).body.code).toBe(2001);
  const hook = { name: 'w', url: 'http://127.0.0.1:9/', types: ['log.'] };
  expect((await service.send('POST', '/webhooks/', hook)).body.code).toBe(2001);
  const [sealed, unsealed] = [join(sandbox.folder, 'sealed'), join(sandbox.folder, 'unsealed')];
  const DATA_DIR = dataOf('data');
  const backup = await runTool('backup', [sealed, '--passphrase', 'open sesame'], { DATA_DIR });
  expect(backup.out).not.toContain('SECRET_KEY');
  await runTool('backup', [unsealed], { DATA_DIR });
  await stop(service);
  const secret = await readFile(join(DATA_DIR, 'secret.key'), 'utf8');
  expect((await readFile(sealed)).includes(secret.trim())).toBe(false);

  const other = dataOf('other');
  const wrong = await runTool('restore', [sealed, '--passphrase', 'open barley'], { DATA_DIR: other });
  expect(wrong).toEqual({
    code: 1,
    out: '',
    complaints: ['restore: --passphrase is not the one of the backup; nothing was changed'],
  });
  const none = await runTool('restore', [unsealed, '--passphrase', 'open sesame'], { DATA_DIR: other });
  expect([none.code, none.complaints.join()]).toEqual([1, expect.stringContaining('without --passphrase')]);
  await expect(access(join(other, 'secret.key'))).rejects.toThrow('ENOENT');

  /** The answers of the linked storage and of a webhook's test under restored secrets. */
  const useSecrets = async (env: NodeJS.ProcessEnv) => {
    const restored = await sandbox.service({ FILESTORE_LOCAL_ROOT: files, ...env });
    const as = { 'service.apikey': key };
    const { body: list } = await restored.send('GET', `${storage}?op=all`, undefined, as);
    const { body: tested } = await restored.send('POST', '/webhooks/w@demo/test/', undefined, as);
    await stop(restored);
    return [list.result?.[0].path ?? list.code, tested.code];
  };
  const right = await runTool('restore', [sealed], { DATA_DIR: other, BACKUP_PASSPHRASE: 'open sesame' });
  expect([right.code, right.out.includes('anew')]).toEqual([0, false]);
  expect(right.out).toContain('1 webhooks are enabled: unless this replaces the original, start with WEBHOOKS=off');
  expect(await readFile(join(other, 'secret.key'), 'utf8')).toBe(secret);
  expect(await useSecrets({ DATA_DIR: other })).toEqual(['a.txt', 2001]);
  const reseal = { DATA_DIR: dataOf('resealed'), SECRET_KEY: 'a key of the other service' };
  const resealed = await runTool('restore', [sealed, '--passphrase', 'open sesame'], reseal);
  expect([resealed.code, resealed.out.includes('anew')]).toEqual([0, false]);
  expect(await useSecrets(reseal)).toEqual(['a.txt', 2001]);
  const lose = { DATA_DIR: dataOf('lost'), SECRET_KEY: 'a key of the other service' };
  expect(await runTool('restore', [sealed], lose)).toMatchObject({
    code: 0,
    out: expect.stringContaining(
      'under another SECRET_KEY: 1 linked storages, which have to be linked anew, and 1 webhooks, which need a new secret',
    ),
  });
  expect(await useSecrets(lose)).toEqual([5032, 5032]);
});
