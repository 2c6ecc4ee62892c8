import { Command } from 'commander';
import { createRandom } from '../../tests/support/random.js';
import { runAlarmRaces } from './alarms.js';
import { runCommandRaces } from './commands.js';
import { killDuringIngest, killDuringUnsafeWrites } from './durability.js';
import { runEventLogRaces } from './event-log.js';
import { type Fault, runFailover } from './failover.js';
import { parseCount } from './instance.js';
import { runLiveResume } from './live-resume.js';
import type { RaceOptions } from './races.js';
import { runRollingRestart } from './rolling-restart.js';
import { runSummaryRaces } from './summaries.js';
import { runValueRaces } from './values.js';

/** Prints the first lines of what is wrong. */
function report(faults: readonly string[]): void {
  for (const fault of faults.slice(0, 20)) console.log(fault);
  if (faults.length > 0) process.exitCode = 1;
}

interface Check {
  name: string;
  description: string;
  /** Devices that send at the same time. */
  devices?: number;
  run(options: RaceOptions & { devices: number }): Promise<{ faults: readonly string[] }>;
}

interface RaceFlags {
  devices?: number;
  minutes: number;
  run: number;
  killPeriod: number;
  seed: number;
  replicaSet?: true;
}

const program = new Command('checks').description('Compares what is stored with what clients saw, under faults.');

/** Adds a check that runs for the minutes of the command line, in runs that each have the next seed. */
function addRaces({ name, description, devices, run }: Check): void {
  const command = program
    .command(name)
    .description(`${description} Two instances and the database are killed meanwhile.`)
    .option('--minutes <n>', 'length of the load', parseCount, 30)
    .option('--run <n>', 'minutes of a run', parseCount, 1)
    .option('--kill-period <ms>', 'mean time between two kills', parseCount, 4000)
    .option('--seed <n>', 'first seed; each run takes the next one', parseCount, 1)
    .option('--replica-set', 'a replica set of three instead of the embedded database');
  if (devices !== undefined) command.option('--devices <n>', 'devices that send at the same time', parseCount, devices);
  command.action(async (flags: RaceFlags) => {
    for (let begun = 0; begun * flags.run < flags.minutes; begun++) {
      const { faults } = await run({
        devices: flags.devices ?? 0,
        seconds: flags.run * 60,
        seed: flags.seed + begun,
        kill_period_ms: flags.killPeriod,
        replicaSet: flags.replicaSet === true,
        print: console.log,
      });
      report(faults);
    }
  });
}

addRaces({ name: 'races', description: 'Compares the event log with random requests.', run: runEventLogRaces });
addRaces({ name: 'alarms', description: 'Compares alarms with a plain model.', devices: 16, run: runAlarmRaces });
addRaces({
  name: 'values',
  description: 'Compares lists by last values with a plain model, while devices and models change.',
  devices: 16,
  run: runValueRaces,
});
addRaces({
  name: 'summaries',
  description: 'Compares series with stored streams, while streams come late and are deleted, and devices move.',
  devices: 6,
  run: runSummaryRaces,
});
addRaces({
  name: 'commands',
  description: 'Compares commands with requests, deliveries and events.',
  devices: 8,
  run: runCommandRaces,
});

program
  .command('durability')
  .description('Kills the service and its database during ingest and counts acknowledged streams that are missing.')
  .option('--rounds <n>', 'kills of each victim', parseCount, 10)
  .action(async ({ rounds }: { rounds: number }) => {
    const options = { rounds, print: console.log };
    for (const victim of ['service', 'mongod', 'both'] as const) {
      const { acknowledged, lost, late } = await killDuringIngest(victim, options);
      console.log(`${victim}: ${lost} of ${acknowledged} acknowledged streams lost, ${late} receipts late`);
      if (lost > 0 || late > 0) process.exitCode = 1;
    }
    const control = await killDuringUnsafeWrites(options);
    console.log(`control, w:1 without journal: ${control.lost} of ${control.acknowledged} acknowledged writes lost`);
    if (control.lost === 0)
      report([`the control lost nothing in ${rounds} rounds, so the result proves nothing: use more rounds`]);
  });

program
  .command('resume')
  .description('Kills the service while live feeds are read, and compares what readers receive with what is stored.')
  .option('--tries <n>', 'kills of the service', parseCount, 100)
  .option('--seed <n>', 'seed of the random moments', parseCount, 1)
  .action(async (options: { tries: number; seed: number }) => {
    const { faults } = await runLiveResume({ ...options, print: console.log });
    report(faults);
  });

program
  .command('rolling')
  .description('Restarts two instances behind a balancer in turn and counts the requests that fail.')
  .option('--rounds <n>', 'restarts of each instance', parseCount, 20)
  .option('--seed <n>', 'seed of the pauses', parseCount, 1)
  .option('--shutdown-delay <seconds>', 'SHUTDOWN_DELAY_S of the instances: 5', Number)
  .option('--haproxy', 'restarts behind HAProxy, configured as in docs/operations.md')
  .action(async (flags: { rounds: number; seed: number; shutdownDelay?: number; haproxy?: true }) => {
    const { shutdownDelay: shutdown_delay_s, ...options } = flags;
    const { failed, faults } = await runRollingRestart({ ...options, shutdown_delay_s, print: console.log });
    report([...failed, ...faults]);
  });

program
  .command('failover')
  .description('Kills, steps down and partitions the primary under writes and compares what was acknowledged.')
  .option('--minutes <n>', 'length of the load', parseCount, 10)
  .option('--seed <n>', 'seed of requests, pauses and faults', parseCount, 1)
  .option('--election <ms>', 'electionTimeoutMillis of the replica set', parseCount, 1000)
  .option('--heartbeat <ms>', 'heartbeatIntervalMillis of the replica set', parseCount, 200)
  .action(async (flags: { minutes: number; seed: number; election: number; heartbeat: number }) => {
    const { minutes, seed, election, heartbeat } = flags;
    const { faults, repeatedLines } = await runFailover({
      faults: chooseFaults(minutes, createRandom(seed)),
      seed,
      election: { electionTimeoutMillis: election, heartbeatIntervalMillis: heartbeat },
      print: console.log,
    });
    report([...faults, ...repeatedLines]);
  });

function* chooseFaults(minutes: number, random: () => number): Generator<Fault> {
  const all = ['kill', 'step down', 'partition', 'short partition'] as const;
  yield* all;
  for (const end = Date.now() + minutes * 60_000; Date.now() < end; )
    yield all[Math.floor(random() * all.length)] ?? 'kill';
}

await program.parseAsync();
