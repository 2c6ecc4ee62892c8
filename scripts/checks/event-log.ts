import { randomBytes } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import mongoose from 'mongoose';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { createRandom } from '../../tests/support/random.js';
import type { ServiceProcess } from '../support/service-process.js';
import { findFaults, type SentRequest } from './event-log-model.js';
import { killDatabase, parseCount, startInstance, waitUntilReady } from './instance.js';
import { readObjects, readWholeLog, sendRequests } from './random-requests.js';

interface Options {
  /** Length of the load. */
  seconds: number;
  seed: number;
  /** Between two kills, at random up to twice as long. */
  kill_period_ms: number;
  print: (line: string) => void;
}

/** Counts of requests and events. */
export interface Outcome {
  acknowledged: number;
  unknown: number;
  events: number;
  kills: number;
  /** Differences between the log, the acknowledged requests and the stored objects. */
  faults: readonly string[];
}

const clients = 8;

/**
 * Sends random creates, updates, moves and deletions to two instances, kills instances and database with SIGKILL at
 * random moments, and compares the event log with the answers and with what is stored at the end.
 */
export async function runEventLogRaces({ seconds, seed, kill_period_ms, print }: Options): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'event-log-'));
  const random = createRandom(seed);
  const log = { info() {}, warn() {}, error() {} };
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log, print: () => undefined });
  const key = randomBytes(16).toString('hex');
  const start = () => startInstance(embedded.uri, key);
  const client = new mongoose.mongo.MongoClient(embedded.uri);
  const instances: ServiceProcess[] = [];
  try {
    instances.push(await start(), await start());
    const requests: SentRequest[] = [];
    const load = new AbortController();
    const running = Array.from({ length: clients }, (_, number) =>
      sendRequests({ instances, key, random, requests, number, signal: load.signal }),
    );
    let kills = 0;
    for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
      await sleep(Math.min(random() * 2 * kill_period_ms, Math.max(0, end - Date.now())));
      if (Date.now() >= end) break;
      kills++;
      const victim = Math.floor(random() * 3);
      const instance = instances[victim];
      if (instance === undefined) await killDatabase(folder);
      else {
        await instance.stop('SIGKILL');
        instances[victim] = await start();
      }
    }
    load.abort();
    await Promise.all(running);
    await Promise.all(instances.map(waitUntilReady));
    const db = client.db();
    const events = await readWholeLog(db);
    const stored = await readObjects(db);
    const faults = findFaults(requests, events, stored);
    const acknowledged = requests.filter(({ code }) => code < 3000).length;
    const unknown = requests.filter(({ code }) => code >= 5000).length;
    print(
      `seed ${seed}: ${acknowledged} acknowledged, ${unknown} unknown, ${events.length} events, ${kills} kills, ${faults.length} faults`,
    );
    return { acknowledged, unknown, events: events.length, kills, faults };
  } finally {
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await client.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function main(): Promise<void> {
  const program = new Command('races')
    .description('Compares the event log with random requests, while two instances and the database are killed.')
    .option('--minutes <n>', 'length of the load', parseCount, 30)
    .option('--seed <n>', 'first seed; each run of a minute takes the next one', parseCount, 1)
    .parse();
  const { minutes, seed } = program.opts<{ minutes: number; seed: number }>();
  for (let minute = 0; minute < minutes; minute++) {
    const run = { seconds: 60, seed: seed + minute, kill_period_ms: 4000 };
    const { faults } = await runEventLogRaces({ ...run, print: console.log });
    for (const fault of faults.slice(0, 20)) console.log(fault);
    if (faults.length > 0) process.exitCode = 1;
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
