import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { clientOf, createGroups, loadDevices } from './data.js';
import { findGenerator } from './load.js';
import { measure, type Result } from './measure.js';
import { startMongod } from './mongod.js';
import { tableOf } from './report.js';
import { rowsOf } from './rows.js';
import { type Server, startFloor, startService } from './server.js';

interface Options {
  rounds: number;
  seconds: number;
  only?: string[];
  groups: number;
  generator?: string;
  json: string;
}

const devices_per_group = 1000;
const say = (line: string) => process.stderr.write(`${line}\n`);

function wholeNumber(text: string): number {
  if (!/^[1-9][0-9]{0,3}$/.test(text)) throw new InvalidArgumentError('must be a whole number from 1 to 9999.');
  return Number(text);
}

const options = new Command('bench')
  .description('Measures the service against a bare HTTP server on the same database.')
  .option('--rounds <n>', 'pairs of measurements', wholeNumber, 5)
  .option('--seconds <n>', 'length of a measurement', wholeNumber, 4)
  .option('--only <rows>', 'rows, comma-separated', (text) => text.split(','))
  .option('--groups <n>', 'groups of 1,000 devices', wholeNumber, 100)
  .addOption(new Option('--generator <name>', 'default: wrk where it is on PATH').choices(['wrk', 'autocannon']))
  .option('--json <file>', 'where the results go', 'bench-results.json')
  .parse()
  .opts<Options>();

const folder = await mkdtemp(join(tmpdir(), 'bench-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
process.exitCode = await main();

async function main(): Promise<number> {
  await mkdir(join(folder, 'db'));
  const generator = await findGenerator(folder, options.generator);
  const mongod = await startMongod(join(folder, 'db'), say);
  const servers: Server[] = [];
  try {
    const key = randomBytes(16).toString('hex');
    const service = await startService({ folder, uri: mongod.uri, key });
    servers.push(service);
    const floor = await startFloor({ folder, uri: mongod.uri, key });
    servers.push(floor);

    const groups = Array.from({ length: options.groups }, (_, nth) => nth);
    const client = clientOf(service.url, key);
    say(`loading ${groups.length * devices_per_group} devices`);
    await createGroups(client, groups);
    await loadDevices({ client, db: mongod.db, groups, devices_per_group, onProgress: () => undefined });

    const results: Result[] = [];
    const failures: string[] = [];
    const rows = rowsOf({ db: mongod.db, key, groups, devices_per_group });
    for (const row of rows) {
      if (options.only?.includes(row.name) === false) continue;
      const { rounds, seconds } = options;
      try {
        results.push(await measure(row, { service, floor, mongod_pid: mongod.pid, generator, rounds, seconds, say }));
      } catch (error) {
        failures.push(`${row.name}: ${error instanceof Error ? error.message : error}`);
        say(`FAILED ${failures.at(-1)}`);
      }
    }
    console.log(tableOf(results));
    await writeFile(
      options.json,
      `${JSON.stringify({ generator: generator.name, cpus: cpus().length, results, failures }, null, 2)}\n`,
    );
    return failures.length === 0 ? 0 : 1;
  } finally {
    for (const server of servers) await server.stop();
    await mongod.stop();
  }
}
