import { Command } from 'commander';
import { formatTable } from '../bench/report.js';
import { runFailover } from '../checks/failover.js';
import { runRollingRestart } from '../checks/rolling-restart.js';
import { findProgram } from '../support/service-process.js';
import { drillBackup } from './backup.js';
import { hasCommit, last_release } from './earlier-version.js';
import { canMount, drillFullDisk } from './full-disk.js';
import { drillImports, hasProxies } from './imports.js';
import type { Outcome } from './outcome.js';
import { drillUpgrade } from './upgrade.js';

/** Has no output of the steps between the lines of the table. */
const print = () => undefined;
const seed = Date.now() % 1_000_000;

interface Step {
  /** As docs/operations.md calls what it tries. */
  name: string;
  /** The program or right that the machine lacks for it. */
  lacks?: string | false;
  run(): Promise<Outcome>;
}

const steps: readonly Step[] = [
  { name: 'upgrade', lacks: !hasCommit(last_release) && 'the history of the repository', run: drillUpgrade },
  { name: 'backup and restore', run: drillBackup },
  {
    name: 'failover',
    async run() {
      const { acknowledged, events, faults } = await runFailover({
        faults: ['kill', 'step down', 'partition'],
        seed,
        election: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
        pause_ms: 20,
        print,
      });
      const counts = Object.entries(acknowledged).map(([kind, count]) => `${count} ${kind}`);
      return { counted: `${counts.join(', ')}, ${events} events`, faults };
    },
  },
  {
    name: 'rolling restart',
    async run() {
      const haproxy = findProgram('haproxy') !== undefined;
      const { requests, published, restarts, ...found } = await runRollingRestart({ rounds: 2, seed, haproxy, print });
      const counted = `${restarts} restarts behind ${haproxy ? 'HAProxy' : 'a balancer'}, ${requests} requests, ${published} publishes`;
      return { counted, faults: [...found.failed, ...found.faults] };
    },
  },
  { name: 'import', lacks: !hasProxies() && 'nginx and HAProxy', run: drillImports },
  { name: 'full disk', lacks: !canMount() && 'the right to mount', run: drillFullDisk },
];

async function main(): Promise<void> {
  const { only } = new Command('drill')
    .description(
      'Carries out what docs/operations.md describes, under load, and compares what is left with what was acknowledged.',
    )
    .option('--only <step>', 'one of the steps')
    .parse()
    .opts<{ only?: string }>();
  const rows: string[][] = [];
  for (const { name, lacks, run } of steps) {
    if (only !== undefined && only !== name) continue;
    if (lacks) {
      rows.push([name, `skipped: needs ${lacks}`, '', '']);
      continue;
    }
    const begun = performance.now();
    const { counted, faults } = await run().catch((error: Error) => ({ counted: '', faults: [error.message] }));
    rows.push([name, counted, `${Math.round((performance.now() - begun) / 1000)} s`, faults.join('; ') || 'none']);
    console.error(`${name}: ${faults.length} faults`);
    if (faults.length > 0) process.exitCode = 1;
  }
  console.log(formatTable([['step', 'counted', 'took', 'faults'], ...rows]));
}

await main();
