import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { createRandom } from '../../tests/support/random.js';
import { startReplicaSet } from '../../tests/support/replica-set.js';
import type { ServiceProcess } from '../support/service-process.js';
import { killDatabase, startInstance, waitUntilReady } from './instance.js';

/** A check that compares what is stored with what its clients saw. */
export interface RaceOptions {
  /** Length of the load. */
  seconds: number;
  seed: number;
  /** Between two kills, at random up to twice as long. */
  kill_period_ms: number;
  /** Three members, of which the primary is killed or steps down; default: the embedded database. */
  replicaSet?: boolean;
  print: (line: string) => void;
}

/** Two instances on one database. */
export interface Races {
  /** API key of the account "demo" with scope `admin`. */
  key: string;
  random: () => number;
  /** An instance that was killed is replaced at its place. */
  instances: readonly ServiceProcess[];
  db: mongo.Db;
  /** Kills instances with SIGKILL, and disturbs the database, at random moments. @returns how often, after `seconds` */
  kill(): Promise<number>;
  /** Waits until both instances answer. @throws Error with the output of instance and database if one does not */
  recover(): Promise<void>;
}

interface RaceSetup extends Pick<RaceOptions, 'seconds' | 'seed' | 'kill_period_ms' | 'replicaSet'> {
  /** Further variables of each instance. */
  env?: readonly [NodeJS.ProcessEnv, NodeJS.ProcessEnv];
}

const election = { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 };
/** More than the 5 s that a secondary has to catch up. */
const step_down_s = 6;

/** Starts the instances for `work`, and removes everything after it. */
export async function withRaces<Result>(
  { seconds, seed, kill_period_ms, replicaSet = false, env = [{}, {}] }: RaceSetup,
  work: (races: Races) => Promise<Result>,
): Promise<Result> {
  const folder = await mkdtemp(join(tmpdir(), 'races-'));
  const random = createRandom(seed);
  const reports: string[] = [];
  const database = await (replicaSet
    ? startMembers(folder, random)
    : startAlone(folder, (line) => void reports.push(line)));
  const key = randomBytes(16).toString('hex');
  const client = new mongoose.mongo.MongoClient(database.uri);
  const instances: ServiceProcess[] = [];
  const start = async (slot: number) => {
    instances[slot] = await startInstance(database.uri, key, env[slot]);
  };

  async function kill(): Promise<number> {
    const end = Date.now() + seconds * 1000;
    for (let kills = 0; ; kills++) {
      await sleep(Math.min(random() * 2 * kill_period_ms, Math.max(0, end - Date.now())));
      if (Date.now() >= end) return kills;
      const victim = Math.floor(random() * 3);
      const instance = instances[victim];
      if (instance === undefined) await database.disturb();
      else {
        await instance.stop('SIGKILL');
        await start(victim);
      }
    }
  }

  const recover = async () => {
    try {
      await Promise.all(instances.map(waitUntilReady));
    } catch (cause) {
      throw new Error(`${(cause as Error).message}\n${reports.join('\n')}`, { cause });
    }
  };
  try {
    for (const slot of env.keys()) await start(slot);
    return await work({ key, random, instances, db: client.db(), kill, recover });
  } finally {
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await client.close();
    await database.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

interface RaceDatabase {
  uri: string;
  /** Ends it in the middle of its work; it comes back by itself. */
  disturb(): Promise<void>;
  stop(): Promise<void>;
}

async function startAlone(folder: string, report: (line: string) => void): Promise<RaceDatabase> {
  const write = (fields: object, message: string) =>
    report(`${new Date().toISOString()} ${message} ${JSON.stringify(fields)}`);
  const log = { info: write, warn: write, error: write };
  const { uri, stop } = await startEmbedded({ dataDir: folder, env: process.env, log, print: () => undefined });
  return { uri, stop, disturb: () => killDatabase(folder) };
}

async function startMembers(folder: string, random: () => number): Promise<RaceDatabase> {
  const set = await startReplicaSet({ folder, settings: election });
  async function disturb(): Promise<void> {
    if (random() < 0.5) await set.stepDown(step_down_s);
    else {
      const primary = await set.findPrimary();
      await primary.kill();
      primary.start();
    }
    await set.settle();
  }
  return { uri: set.uri, stop: set.stop, disturb };
}
