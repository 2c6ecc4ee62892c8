import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { clientOf, createGroups, loadDevices } from './data.js';
import { onStage, type Stage, wholeNumber } from './environment.js';
import { findGenerator } from './generator.js';
import { measure, type Result } from './measure.js';
import { say } from './progress.js';
import { limitTable, resultTable } from './report.js';
import { rowsOf } from './scenarios.js';
import { startFloor, startService } from './server.js';
import { type Limit, strain } from './stress.js';

interface Options {
  rounds: number;
  seconds: number;
  only?: string[];
  groups: number;
  generator?: string;
  json: string;
}

const names = ['get', 'list-json', 'list-xml', 'page', 'geo', 'post', 'put', 'stream', 'memory', 'pause'];
const devices_per_group = 1000;

const options = new Command('bench')
  .description('Measures the service against a bare HTTP server on the same database.')
  .option('--rounds <n>', 'pairs of measurements', wholeNumber, 5)
  .option('--seconds <n>', 'length of a measurement', wholeNumber, 4)
  .option('--only <rows>', `some of ${names.join()}`, rowNames)
  .option('--groups <n>', 'groups of 1,000 devices', wholeNumber, 100)
  .addOption(new Option('--generator <name>', 'default: wrk where it is on PATH').choices(['wrk', 'autocannon']))
  .option('--json <file>', 'where the results go', 'bench-results.json')
  .parse()
  .opts<Options>();

function rowNames(text: string): string[] {
  const given = text.split(',');
  const unknown = given.find((name) => !names.includes(name));
  if (unknown !== undefined) throw new InvalidArgumentError(`there is no row ${unknown}.`);
  return given;
}

async function main({ folder, mongod, closers }: Stage): Promise<void> {
  const { rounds, seconds } = options;
  const wanted = (name: string) => options.only?.includes(name) ?? true;
  const generator = await findGenerator(folder, options.generator);
  const key = randomBytes(16).toString('hex');
  const service = await startService({ folder, uri: mongod.uri('bench'), key });
  closers.push(service.stop);
  const floor = await startFloor({ folder, uri: mongod.uri('bench'), key });
  closers.push(floor.stop);

  const groups = Array.from({ length: options.groups }, (_, number) => ({ number, devices: devices_per_group }));
  const db = mongod.db('bench');
  const client = clientOf(service.url, key);
  await createGroups(client, groups);
  await loadDevices({ client, db, groups });

  const results: Result[] = [];
  const limits: Limit[] = [];
  const failures: string[] = [];
  const attempt = async (name: string, work: () => Promise<void>) => {
    await work().catch((error: unknown) => {
      failures.push(`${name}: ${error instanceof Error ? error.message : error}`);
      say(`FAILED ${failures.at(-1)}`);
    });
  };
  const rows = rowsOf({ db, key, groups });
  for (const row of rows.filter(({ name }) => wanted(name))) {
    await attempt(row.name, async () => {
      results.push(await measure(row, { service, floor, mongod_pid: mongod.pid, generator, rounds, seconds, say }));
    });
  }
  if (wanted('memory') || wanted('pause')) {
    await attempt('memory and pause', async () => {
      const requests = await listRequests();
      limits.push(...(await strain({ service, generator, requests, rounds, seconds, say })));
    });
  }
  const told = [resultTable(results), limitTable(limits), ...failures.map((line) => `FAILED ${line}`)];
  console.log(told.filter(Boolean).join('\n\n'));
  const taken = { generator: generator.name, processors: cpus().length, rounds, seconds, results, limits, failures };
  await writeFile(options.json, `${JSON.stringify(taken, null, 2)}\n`);
  process.exitCode = failures.length === 0 ? 0 : 1;

  function listRequests() {
    const row = rows.find(({ name }) => name === 'list-json');
    if (row === undefined) throw new Error('there is no row list-json');
    return row.service('strain');
  }
}

await onStage(main);
