import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError, Option } from 'commander';
import { clientOf, createGroups, loadDevices } from './data.js';
import { onStage, type Stage, wholeNumber } from './environment.js';
import { findGenerator } from './generator.js';
import type { Generator } from './load.js';
import { assertSameAnswers, median, takeSample } from './measure.js';
import { say } from './progress.js';
import { markdown } from './report.js';
import { type Row, rowsOf } from './scenarios.js';
import { type Server, startService } from './server.js';

interface Options {
  rounds: number;
  seconds: number;
  only?: string;
  groups: number;
  generator?: string;
}

/** One of the two checkouts: its service on a database of its own, and the rows addressed to it. */
interface Side {
  name: 'old' | 'new';
  server: Server;
  rows: readonly Row[];
}

const devices_per_group = 1000;
const warm_up_s = 2;
/** For requests in flight when the previous measurement ended. */
const settle_ms = 500;

const program = new Command('bench:compare')
  .description('Measures the services of two built checkouts in turn (old, new, old, new, …), with the same load.')
  .argument('<old>', 'directory of the old checkout, built', builtCheckout)
  .argument('<new>', 'directory of the new checkout, built', builtCheckout)
  .option('--rounds <n>', 'pairs of measurements per row', wholeNumber, 3)
  .option('--seconds <n>', 'length of a measurement', wholeNumber, 4)
  .option('--only <rows>', 'rows to measure, separated by commas (default: all)')
  .option('--groups <n>', 'groups of 1,000 devices', wholeNumber, 100)
  .addOption(new Option('--generator <name>', 'default: wrk if it is on PATH').choices(['wrk', 'autocannon']))
  .parse();

function builtCheckout(directory: string): string {
  if (!existsSync(join(directory, 'dist/src/main.js')))
    throw new InvalidArgumentError(`there is no dist/src/main.js in ${resolve(directory)}; run npm run build there.`);
  return resolve(directory);
}

async function main(stage: Stage): Promise<void> {
  const { rounds, seconds, only, groups, generator: wanted } = program.opts<Options>();
  const generator = await findGenerator(stage.folder, wanted);
  const [oldCheckout = '', newCheckout = ''] = program.processedArgs as string[];
  const sides = [
    await startSide(stage, 'old', oldCheckout, groups),
    await startSide(stage, 'new', newCheckout, groups),
  ];
  const names = sides[0]?.rows.map(({ name }) => name) ?? [];
  const selected = only?.split(',') ?? names;
  const unknown = selected.find((name) => !names.includes(name));
  if (unknown !== undefined) throw new Error(`there is no row ${unknown}; the rows are ${names.join()}`);

  const table = [['row', 'old', 'new', 'ratio', 'lowest and highest ratio of a pair']];
  for (const name of names.filter((row) => selected.includes(row))) {
    try {
      table.push([
        name,
        ...(await compareRow(name, sides, { rounds, seconds, generator, mongod_pid: stage.mongod.pid })),
      ]);
    } catch (error) {
      table.push([name, 'FAILED', error instanceof Error ? error.message.slice(0, 200) : String(error), '', '']);
      process.exitCode = 1;
    }
    say(table.at(-1)?.join(' | ') ?? '');
  }
  console.log(`${generator.name}, ${rounds} rounds of ${seconds} s; medians, ratio: new / old\n\n${markdown(table)}`);
}

/** Starts the service of a checkout on a database of its own and loads the fleet into it. */
async function startSide(
  { folder, mongod, closers }: Stage,
  name: Side['name'],
  checkout: string,
  groupCount: number,
): Promise<Side> {
  const key = randomBytes(16).toString('hex');
  const db = mongod.db(`compare-${name}`);
  const server = await startService({ folder, uri: mongod.uri(`compare-${name}`), key, checkout });
  closers.push(server.stop);
  say(`${name}: ${checkout} at ${server.url}`);
  const groups = Array.from({ length: groupCount }, (_, number) => ({ number, devices: devices_per_group }));
  const client = clientOf(server.url, key);
  await createGroups(client, groups);
  await loadDevices({ client, db, groups });
  return { name, server, rows: rowsOf({ db, key, groups }) };
}

/** Returns the cells of a row: both medians, their ratio and the range of the ratios. */
async function compareRow(
  name: string,
  sides: readonly Side[],
  { rounds, seconds, ...options }: { rounds: number; seconds: number; generator: Generator; mongod_pid: number },
): Promise<string[]> {
  const rowOf = ({ rows }: Side): Row => {
    const row = rows.find((candidate) => candidate.name === name);
    if (row === undefined) throw new Error(`there is no row ${name}`);
    return row;
  };
  const sample = async (side: Side, round: string, length_s: number): Promise<number> => {
    await sleep(settle_ms);
    const row = rowOf(side);
    const requests = await row.service(`${side.name}${round}`);
    const { connections } = row;
    const { per_second } = await takeSample({
      server: side.server,
      requests,
      connections,
      seconds: length_s,
      ...options,
    });
    return per_second;
  };
  await assertSameAnswers(
    await Promise.all(
      sides.map(async (side) => ({ server: side.server, requests: await rowOf(side).service('compare') })),
    ),
  );
  for (const side of sides) await sample(side, 'warm', warm_up_s);
  const pairs: [number, number][] = [];
  for (let round = 1; round <= rounds; round++) {
    const pair: [number, number] = [Number.NaN, Number.NaN];
    for (const [index, side] of sides.entries()) pair[index] = await sample(side, String(round), seconds);
    pairs.push(pair);
    say(`${name} ${round}/${rounds}: old ${pair[0].toFixed(0)}/s, new ${pair[1].toFixed(0)}/s`);
  }
  const [oldMedian, newMedian] = [median(pairs.map(([before]) => before)), median(pairs.map(([, after]) => after))];
  const ratios = pairs.map(([before, after]) => after / before);
  const range = [Math.min(...ratios), Math.max(...ratios)].map((ratio) => ratio.toFixed(3)).join(' … ');
  return [`${oldMedian.toFixed(0)}/s`, `${newMedian.toFixed(0)}/s`, (newMedian / oldMedian).toFixed(3), range];
}

await onStage(main);
