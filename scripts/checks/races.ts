import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import mongoose, { type mongo } from 'mongoose';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { createRandom } from '../../tests/support/random.js';
import type { ServiceProcess } from '../support/service-process.js';
import { killDatabase, parseCount, startInstance, waitUntilReady } from './instance.js';

/** A check that compares what is stored with what its clients saw. */
export interface RaceOptions {
  /** Length of the load. */
  seconds: number;
  seed: number;
  /** Between two kills, at random up to twice as long. */
  kill_period_ms: number;
  print: (line: string) => void;
}

/** Two instances on an embedded database. */
export interface Races {
  /** API key of the account "demo" with scope `admin`. */
  key: string;
  random: () => number;
  /** An instance that was killed is replaced at its place. */
  instances: readonly ServiceProcess[];
  db: mongo.Db;
  /** Kills instances and database with SIGKILL at random moments. @returns the number of kills, after `seconds` */
  kill(): Promise<number>;
  /** Waits until both instances answer. */
  recover(): Promise<void>;
}

interface RaceSetup extends Pick<RaceOptions, 'seconds' | 'seed' | 'kill_period_ms'> {
  /** Further variables of each instance. */
  env?: readonly [NodeJS.ProcessEnv, NodeJS.ProcessEnv];
}

/** Starts the instances for `work`, and removes everything after it. */
export async function withRaces<Result>(
  { seconds, seed, kill_period_ms, env = [{}, {}] }: RaceSetup,
  work: (races: Races) => Promise<Result>,
): Promise<Result> {
  const folder = await mkdtemp(join(tmpdir(), 'races-'));
  const random = createRandom(seed);
  const log = { info() {}, warn() {}, error() {} };
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log, print: () => undefined });
  const key = randomBytes(16).toString('hex');
  const client = new mongoose.mongo.MongoClient(embedded.uri);
  const instances: ServiceProcess[] = [];
  const start = async (slot: number) => {
    instances[slot] = await startInstance(embedded.uri, key, env[slot]);
  };

  async function kill(): Promise<number> {
    const end = Date.now() + seconds * 1000;
    for (let kills = 0; ; kills++) {
      await sleep(Math.min(random() * 2 * kill_period_ms, Math.max(0, end - Date.now())));
      if (Date.now() >= end) return kills;
      const victim = Math.floor(random() * 3);
      const instance = instances[victim];
      if (instance === undefined) await killDatabase(folder);
      else {
        await instance.stop('SIGKILL');
        await start(victim);
      }
    }
  }

  const recover = async () => void (await Promise.all(instances.map(waitUntilReady)));
  try {
    for (const slot of env.keys()) await start(slot);
    return await work({ key, random, instances, db: client.db(), kill, recover });
  } finally {
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await client.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs a check for the minutes of the command line, each with the next seed, and prints its first faults. */
export async function runForMinutes(
  program: Command,
  run: (options: RaceOptions) => Promise<{ faults: readonly string[] }>,
): Promise<void> {
  program
    .option('--minutes <n>', 'length of the load', parseCount, 30)
    .option('--seed <n>', 'first seed; each run of a minute takes the next one', parseCount, 1)
    .parse();
  const { minutes, seed } = program.opts<{ minutes: number; seed: number }>();
  for (let minute = 0; minute < minutes; minute++) {
    const { faults } = await run({ seconds: 60, seed: seed + minute, kill_period_ms: 4000, print: console.log });
    for (const fault of faults.slice(0, 20)) console.log(fault);
    if (faults.length > 0) process.exitCode = 1;
  }
}
