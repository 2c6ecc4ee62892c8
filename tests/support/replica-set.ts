import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import {
  findFreePort,
  type RecordedProcess,
  startProcess,
  waitFor,
  waitUntil,
} from '../../scripts/support/service-process.js';
import { findMongod } from '../../src/mongod/binary.js';

const { MongoClient } = mongoose.mongo;

/** A mongod of a replica set. */
export interface Member {
  host: string;
  /** Starts it, also again after a kill. */
  start(): void;
  kill(): Promise<void>;
  /** Stops all its threads: connections stay open and nothing is answered. */
  freeze(): Promise<void>;
  thaw(): void;
}

/** Three mongod on the loopback address, without authentication. */
export interface ReplicaSet {
  uri: string;
  members: readonly Member[];
  /** Waits until a majority knows one primary. */
  findPrimary(): Promise<Member>;
  /** Makes the primary step down for `seconds`. */
  stepDown(seconds: number): Promise<void>;
  /** Waits until one member is primary and all others follow it. */
  settle(): Promise<void>;
  stop(): Promise<void>;
}

export interface ReplicaSetOptions {
  folder: string;
  /** Members of the set's configuration `settings`, such as `electionTimeoutMillis`. */
  settings: Readonly<Record<string, number>>;
}

const member_count = 3;
const start_timeout_ms = 120_000;
const limits = { serverSelectionTimeoutMS: 1000, connectTimeoutMS: 1000, socketTimeoutMS: 10_000 };

/** Starts three mongod with small caches as one replica set. @throws Error if it has no primary in time */
export async function startReplicaSet({ folder, settings }: ReplicaSetOptions): Promise<ReplicaSet> {
  const { path } = await findMongod({ env: process.env, print: () => undefined });
  const members: (Member & { stop(): Promise<void> })[] = [];
  for (let number = 0; number < member_count; number++) {
    const dbPath = join(folder, `member-${number}`);
    await mkdir(dbPath);
    members.push(createMember(path, dbPath, await findFreePort()));
  }
  for (const { start } of members) start();
  const config = { _id: 'rs0', members: members.map(({ host }, _id) => ({ _id, host })), settings };
  const [first] = members;
  await waitUntil(
    () => runCommand(first?.host ?? '', { replSetInitiate: config }).then(() => true, isInitialized),
    start_timeout_ms,
  );
  const set: ReplicaSet = {
    uri: `mongodb://${members.map(({ host }) => host).join(',')}/fleet?replicaSet=rs0`,
    members,
    async findPrimary() {
      const primaryOf = (named: readonly unknown[]) =>
        members.find(({ host }) => named.filter((name) => name === host).length > member_count / 2);
      const readNames = () => Promise.all(members.map(({ host }) => readPrimary(host)));
      const named = await waitFor(readNames, (names) => primaryOf(names) !== undefined, start_timeout_ms);
      return primaryOf(named) as Member;
    },
    async stepDown(seconds) {
      const { host } = await set.findPrimary();
      await runCommand(host, { replSetStepDown: seconds, secondaryCatchUpPeriodSecs: 5 });
    },
    async settle() {
      await waitUntil(async () => {
        const { host } = await set.findPrimary();
        const status = await runCommand(host, { replSetGetStatus: 1 });
        const states = (status.members as { stateStr: string }[]).map(({ stateStr }) => stateStr).sort();
        return states.join() === 'PRIMARY,SECONDARY,SECONDARY';
      }, start_timeout_ms);
    },
    async stop() {
      await Promise.all(members.map((member) => member.stop()));
    },
  };
  await set.settle();
  return set;
}

function createMember(binary: string, dbPath: string, port: number): Member & { stop(): Promise<void> } {
  const storage = ['--dbpath', dbPath, '--storageEngine', 'wiredTiger', '--wiredTigerCacheSizeGB', '0.25'];
  const net = ['--bind_ip', '127.0.0.1', '--port', String(port), '--nounixsocket'];
  const replication = ['--replSet', 'rs0', '--oplogSize', '128'];
  const parameters = [
    'diagnosticDataCollectionEnabled=false',
    // docs/operations.md#failover
    'oplogNetworkTimeoutBufferSeconds=1',
    'oplogFetcherSteadyStateMaxFetcherRestarts=0',
  ].flatMap((parameter) => ['--setParameter', parameter]);
  let running: RecordedProcess | undefined;
  const stop = async () => {
    // a stopped process dies of SIGKILL too
    await running?.stop('SIGKILL');
  };
  return {
    host: `127.0.0.1:${port}`,
    start() {
      const logFile = join(dbPath, '..', `mongod-${port}.log`);
      running = startProcess(binary, [...storage, ...net, ...replication, '--quiet', ...parameters], {
        env: process.env,
        logFile,
      });
    },
    kill: stop,
    async freeze() {
      running?.kill('SIGSTOP');
      // on a busy machine some threads keep running for a while
      await waitUntil(() => isStopped(running?.pid ?? 0), start_timeout_ms);
    },
    thaw: () => running?.kill('SIGCONT'),
    stop,
  };
}

/** True if all threads of a process are stopped. */
export async function isStopped(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`);
  const stats = await Promise.all(threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, 'utf8')));
  return stats.every((stat) => stat.slice(stat.lastIndexOf(')')).startsWith(') T'));
}

async function runCommand(host: string, command: object): Promise<mongoose.mongo.Document> {
  const client = new MongoClient(`mongodb://${host}/?directConnection=true`, limits);
  try {
    return await client.db('admin').command(command);
  } finally {
    await client.close();
  }
}

/** @returns the address of the primary that a member knows, if it answers and knows one */
async function readPrimary(host: string): Promise<string | undefined> {
  const hello = runCommand(host, { hello: 1 }).then(
    ({ primary }) => primary as string | undefined,
    () => undefined,
  );
  // a stopped member accepts connections
  return Promise.race([hello, sleep(limits.connectTimeoutMS, undefined, { ref: false })]);
}

function isInitialized(error: unknown): boolean {
  return (error as { codeName?: unknown }).codeName === 'AlreadyInitialized';
}
