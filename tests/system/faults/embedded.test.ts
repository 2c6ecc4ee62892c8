import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { StartError } from '../../../src/errors.js';
import { findMongod } from '../../../src/mongod/binary.js';
import { findEmbeddedUri, startEmbedded } from '../../../src/mongod/embedded.js';
import { describeSpace } from '../../../src/mongod/mongod-process.js';
import { waitUntil } from '../../support/process.js';

const { MongoClient } = mongoose.mongo;

describe('the embedded database (reference/configuration.md#embedded-database)', () => {
  let binary = '';
  let folder = '';
  let dataDir = '';
  let warnings: string[] = [];
  let reasons: (string | undefined)[] = [];
  let closers: (() => unknown)[] = [];

  beforeAll(async () => {
    binary = (await findMongod({ env: process.env, print: (line) => console.error(line) })).path;
  });

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'embedded-'));
    dataDir = join(folder, 'data');
    [warnings, reasons, closers] = [[], [], []];
  });

  afterEach(async () => {
    for (const close of closers.toReversed()) await close();
    await rm(folder, { recursive: true, force: true });
  });

  async function start(program = binary) {
    const warn = (fields: { reason?: string }, message: string) => {
      warnings.push(message);
      reasons.push(fields.reason);
    };
    const running = await startEmbedded({
      dataDir,
      env: { MONGOMS_SYSTEM_BINARY: program },
      log: { info: () => {}, warn, error: warn },
      print: () => {},
    });
    closers.push(running.stop);
    return running;
  }

  function connectTo(uri: string) {
    const client = new MongoClient(uri, { serverSelectionTimeoutMS: 1_000 });
    closers.push(() => client.close());
    return client;
  }

  const things = (uri: string) => connectTo(uri).db().collection<{ n: number }>('things');
  const withoutLogin = (uri: string) => `mongodb://${new URL(uri).host}/?directConnection=true`;
  const pidOfMongod = async () => Number(await readFile(join(dataDir, 'db', 'mongod.lock'), 'utf8'));

  function begin(command: string, args: string[]): ChildProcess {
    const child = spawn(command, args, { stdio: 'ignore' });
    closers.push(async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGKILL');
      await once(child, 'exit');
    });
    return child;
  }

  it('starts on an empty folder, with transactions, and leaves neither lock nor address behind', async () => {
    const { uri, stop } = await start();
    expect(uri).toMatch(
      /^mongodb:\/\/device_platform:[\w-]{43}@127\.0\.0\.1:\d+\/device_platform\?authSource=admin&replicaSet=rs0$/,
    );
    expect(await readFile(join(dataDir, 'mongodb.uri'), 'utf8')).toBe(`${uri}\n`);
    expect(await findEmbeddedUri(dataDir)).toBe(uri);

    const client = connectTo(uri);
    await client.withSession((session) =>
      session.withTransaction(() => client.db().collection('things').insertOne({ n: 1 }, { session })),
    );
    expect(await things(uri).countDocuments()).toBe(1);

    await Promise.all([stop(), stop()]);
    await stop();
    await expect(access(join(dataDir, 'mongodb.uri'))).rejects.toThrow('ENOENT');
    await expect(access(join(dataDir, 'service.lock'))).rejects.toThrow('ENOENT');
    expect(await findEmbeddedUri(dataDir)).toBeUndefined();
    expect(warnings).toEqual([]);
  });

  it('keeps the data and the port over a restart', async () => {
    const first = await start();
    await things(first.uri).insertOne({ n: 7 }, { writeConcern: { w: 'majority' } });
    await first.stop();

    const began = performance.now();
    const second = await start();
    console.info(`second start: ${Math.round(performance.now() - began)} ms`);
    expect(second.uri).toBe(first.uri);
    expect(await things(second.uri).findOne({}, { projection: { _id: 0 } })).toEqual({ n: 7 });
  });

  it('moves to another port when the previous one is taken', async () => {
    const first = await start();
    await things(first.uri).insertOne({ n: 7 }, { writeConcern: { w: 'majority' } });
    await first.stop();

    const other = begin(process.execPath, [
      '-e',
      `require('http').createServer().listen(${new URL(first.uri).port}, '127.0.0.1')`,
    ]);
    await waitUntil(() => isTaken(Number(new URL(first.uri).port)));
    const second = await start();
    expect(other.exitCode).toBeNull();
    expect(new URL(second.uri).port).not.toBe(new URL(first.uri).port);
    expect(await things(second.uri).countDocuments()).toBe(1);
  });

  it('is back on its port within 10 s of each kill -9 of mongod, with all acknowledged writes', async () => {
    const { uri } = await start();
    const collection = things(uri);
    for (const n of [1, 2]) {
      await collection.insertOne({ n }, { writeConcern: { w: 'majority' } });
      process.kill(await pidOfMongod(), 'SIGKILL');
      const began = performance.now();
      await waitUntil(async () => (await collection.countDocuments()) === n);
      await collection.updateOne({ n }, { $set: { seen: true } }, { writeConcern: { w: 'majority' } });
      console.info(`written again ${Math.round(performance.now() - began)} ms after kill -9`);
      // and more on a busy machine
      expect(performance.now() - began).toBeLessThan(30_000);
    }
    expect(warnings).toHaveLength(2);
  });

  it('says once a minute why mongod does not come back, also if a full disk has cut its log', async () => {
    const program = join(folder, 'program');
    await writeFile(program, `#!/bin/sh\nexec ${binary} "$@"\n`, { mode: 0o755 });
    await start(program);
    const [starts, line] = [
      join(folder, 'starts'),
      '{"s":"E","msg":"WiredTiger error","attr":{"message":"No space left',
    ];
    await writeFile(program, `#!/bin/sh\necho >> ${starts}\nprintf '\\n%s' '${line}'\nexit 14\n`);
    process.kill(await pidOfMongod(), 'SIGKILL');
    await waitUntil(async () => (await readFile(starts, 'utf8').catch(() => '')).length >= 4);
    expect(warnings).toEqual(['embedded database is down; starting it again', 'embedded database does not start']);
    expect(reasons).toEqual(['SIGKILL', `exit code 14; ${line}`]);
    expect([await describeSpace(folder), await describeSpace('/proc')]).toEqual(['', '; 0 MB free']);
  });

  it('ends mongod when it is stopped while mongod is down', async () => {
    const { stop } = await start();
    const pid = await pidOfMongod();
    process.kill(pid, 'SIGKILL');
    await waitUntil(() => warnings.some((line) => line.includes('starting it again')));
    await stop();
    expect(await findEmbeddedUri(dataDir)).toBeUndefined();
    await expect(start()).resolves.toBeDefined();
  });

  it('ends mongod when it is stopped while mongod is being started again', async () => {
    const { uri, stop } = await start();
    const admin = connectTo(`${uri}&directConnection=true`).db('admin');
    await admin.command({ ping: 1 });
    process.kill(await pidOfMongod(), 'SIGKILL');
    // the service has still to log in
    await waitUntil(async () => (await admin.command({ hello: 1 })).isWritablePrimary === true);
    await stop();
    expect(await isTaken(Number(new URL(uri).port)).catch(() => false)).toBe(false);
  });

  it('refuses a folder that a living instance uses, without disturbing it', async () => {
    const { uri } = await start();
    const refused = start();
    await expect(refused).rejects.toThrow(StartError);
    await expect(refused).rejects.toThrow(/^DATA_DIR .*data is in use by process \d+ .*$/);
    expect(await findEmbeddedUri(dataDir)).toBe(uri);
  });

  it('lets exactly one of many take over from a dead instance whose pid another process has', async () => {
    await mkdir(dataDir);
    await writeFile(join(dataDir, 'service.lock'), `${process.pid} 1 gone\n`);
    const outcomes = await Promise.allSettled(Array.from({ length: 5 }, () => start()));
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(StartError);
    }
  });

  it('ends the mongod that a killed instance has left running, and takes over its data', async () => {
    const first = await start();
    await things(first.uri).insertOne({ n: 7 }, { writeConcern: { w: 'majority' } });
    await first.stop();
    const leftOver = begin(binary, [
      ...['--dbpath', join(dataDir, 'db'), '--replSet', 'rs0', '--nounixsocket', '--bind_ip', '127.0.0.1'],
      ...['--port', new URL(first.uri).port],
    ]);
    await waitUntil(() => isTaken(Number(new URL(first.uri).port)));

    const second = await start();
    expect(leftOver.exitCode).toBe(0);
    expect(warnings).toEqual(['ending the embedded database that an earlier instance has left running']);
    expect(await things(second.uri).countDocuments()).toBe(1);
  });

  it('leaves a process alone that has the pid of a former mongod', async () => {
    const bystander = begin('sleep', ['60']);
    await mkdir(join(dataDir, 'db'), { recursive: true });
    await writeFile(join(dataDir, 'db', 'mongod.lock'), `${bystander.pid}\n`);
    await start();
    expect([bystander.exitCode, bystander.signalCode]).toEqual([null, null]);
  });

  it('reports in one line why mongod does not start', async () => {
    const dbPath = join(dataDir, 'db');
    await mkdir(dbPath, { recursive: true });
    // not a replica set, so not one that the service has started
    const foreign = begin(binary, ['--dbpath', dbPath, '--nounixsocket', '--bind_ip', '127.0.0.1', '--port', '0']);
    await waitUntil(async () => (await pidOfMongod()) === foreign.pid);
    const refused = start();
    await expect(refused).rejects.toThrow(StartError);
    await expect(refused).rejects.toThrow(
      /^mongod \d+\.\d+\.\d+ does not start on .*: exit code \d+; .*DBPathInUse.*$/,
    );
    expect(foreign.exitCode).toBeNull();
    foreign.kill('SIGKILL');
    await once(foreign, 'exit');
    await expect(start()).resolves.toBeDefined();
  });

  describe('other local users', () => {
    it('can neither read, write nor create a user without the password', async () => {
      const { uri } = await start();
      await things(uri).insertOne({ n: 7 });
      const db = connectTo(withoutLogin(uri)).db('device_platform');
      const admin = db.client.db('admin');
      for (const command of [
        { listDatabases: 1 },
        { getCmdLineOpts: 1 },
        { getLog: 'global' },
        { serverStatus: 1 },
        { replSetGetStatus: 1 },
        { createUser: 'mallory', pwd: 'mallory', roles: ['root'] },
        { shutdown: 1, force: true },
      ])
        await expect(admin.command(command)).rejects.toMatchObject({ codeName: 'Unauthorized' });
      await expect(db.collection('things').findOne()).rejects.toMatchObject({ codeName: 'Unauthorized' });
      await expect(db.collection('things').insertOne({ n: 8 })).rejects.toMatchObject({ codeName: 'Unauthorized' });
      await expect(db.watch().tryNext()).rejects.toMatchObject({ codeName: 'Unauthorized' });
      const guess = uri.replace(/:[\w-]{43}@/, ':guess@');
      await expect(things(guess).findOne()).rejects.toMatchObject({ codeName: 'AuthenticationFailed' });
      expect(await things(uri).countDocuments()).toBe(1);
    });

    it('have no right on any file, in a folder that was made for all', async () => {
      await chmod(folder, 0o755);
      await mkdir(dataDir);
      await chmod(dataDir, 0o777);
      const { uri } = await start();
      await things(uri).insertOne({ n: 7 });
      const entries = await readdir(dataDir, { recursive: true });
      expect(entries).toEqual(
        expect.arrayContaining(['mongod.key', 'mongod.log', 'mongodb.uri', 'service.lock', 'db']),
      );
      for (const path of ['', ...entries]) {
        const { mode } = await stat(join(dataDir, path)).catch(() => ({ mode: 0 }));
        const isWithinDb = path.startsWith('db/');
        // other users cannot enter db, whatever the modes in it
        if (!isWithinDb) expect([path, mode & 0o077]).toEqual([path, 0]);
      }
      if (process.getuid?.() !== 0) return;
      await writeFile(join(folder, 'control.txt'), 'readable');
      const read = (path: string) => `console.log(require('fs').readFileSync(${JSON.stringify(path)}, 'utf8'))`;
      const asNobody = async (path: string) => {
        const child = spawn(process.execPath, ['-e', read(path)], { uid: 65_534, gid: 65_534, stdio: 'pipe' });
        let output = '';
        for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += text));
        await once(child, 'close');
        return output;
      };
      expect(await asNobody(join(folder, 'control.txt'))).toBe('readable\n');
      for (const path of ['mongodb.uri', 'mongod.key', 'mongod.log', 'db/WiredTiger'])
        expect(await asNobody(join(dataDir, path))).toContain('EACCES');
    });

    it('leaves the rights of a folder alone that holds other things', async () => {
      await mkdir(dataDir);
      await chmod(dataDir, 0o755);
      await writeFile(join(dataDir, 'other.txt'), 'of another program');
      await start();
      expect((await stat(dataDir)).mode & 0o777).toBe(0o755);
      expect((await stat(join(dataDir, 'db'))).mode & 0o777).toBe(0o700);
    });
  });

  it('starts, whenever the first starts were killed', async () => {
    const embedded = pathToFileURL(resolve('dist/src/mongod/embedded.js')).href;
    const script = `
      const { startEmbedded } = await import(${JSON.stringify(embedded)});
      const log = { info() {}, warn() {}, error() {} };
      await startEmbedded({ dataDir: ${JSON.stringify(dataDir)}, env: process.env, log, print() {} });`;
    const env = { ...process.env, MONGOMS_SYSTEM_BINARY: binary };
    // as measured, a start takes some 400 ms; the steps are spread over it
    for (let delay_ms = 150; delay_ms <= 1_350; delay_ms += 150) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', script], { env, stdio: 'ignore' });
      await sleep(delay_ms);
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    const { uri } = await start();
    await things(uri).insertOne({ n: 1 });
    const open = connectTo(withoutLogin(uri)).db('device_platform');
    await expect(open.collection('things').findOne()).rejects.toMatchObject({ codeName: 'Unauthorized' });
  });

  it('works with another key file, such as one that a backup lacked or made readable', async () => {
    const first = await start();
    await things(first.uri).insertOne({ n: 1 });
    await first.stop();
    const keyFile = join(dataDir, 'mongod.key');
    const key = await readFile(keyFile, 'utf8');
    await rm(keyFile);
    const second = await start();
    expect(second.uri).not.toBe(first.uri);
    expect(await things(second.uri).countDocuments({ n: 1 })).toBe(1);
    await second.stop();
    await writeFile(keyFile, key);
    await chmod(keyFile, 0o644);
    const third = await start();
    expect(third.uri).toBe(first.uri);
    expect(await things(third.uri).countDocuments({ n: 1 })).toBe(1);
  });

  it('lists every way to get a mongod and why each failed', async () => {
    const nothing = {
      HOME: folder,
      PATH: folder,
      MONGOMS_SYSTEM_BINARY: join(folder, 'missing'),
      MONGOMS_DOWNLOAD_MIRROR: 'https://127.0.0.1:1',
    };
    const message = await findMongod({ env: nothing, print: () => {} }).catch((error) => error.message);
    expect(message).toContain('Set MONGODB_URI');
    expect(message).toMatch(/MONGOMS_SYSTEM_BINARY .*: spawn .*missing ENOENT/);
    expect(message).toMatch(/install mongod on PATH: not there/);
    expect(message).toMatch(/let mongodb-memory-server download one: .*ECONNREFUSED/);
    expect(message).toMatch(/python3 with pip.*: (spawn python3 ENOENT|the package is for linux x64.*)/);
  });
});

async function isTaken(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return once(socket, 'connect')
    .then(() => true)
    .finally(() => socket.destroy());
}
