import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import { httpGenerator } from './autocannon.js';
import { type Client, createClient, createGroups, deviceId, loadDevices, loadStreams } from './data.js';
import { type Environment, parseCheckout, parseCount, withEnvironment } from './environment.js';
import { measureInTurns, medianSample, pairRatios } from './measure.js';
import { printProgress } from './progress.js';
import { formatRate, formatTable } from './report.js';
import { createScenarios, type ScenarioName, scenarioNames } from './scenarios.js';
import { type Server, startService } from './server.js';

interface Options {
  rounds: number;
  seconds: number;
  only?: ScenarioName[];
  groups: number;
  measures?: true;
}

/** The service of a checkout on its own database. */
interface CheckoutService {
  server: Server;
  client: Client;
  scenarios: ReturnType<typeof createScenarios>;
}

const devices_per_group = 1000;
const header = [
  'row',
  'old',
  'new',
  'ratio',
  'lowest and highest ratio of a pair',
  ...['CPU, s per 1,000: old', 'new'],
  ...['of mongod: old', 'new'],
];

const program = new Command('bench:compare')
  .description('Compares the services of two built checkouts, measured in turn (old, new, old, new, …).')
  .argument('<old>', 'directory of the old checkout', parseCheckout)
  .argument('<new>', 'directory of the new checkout', parseCheckout)
  .option('--rounds <n>', 'measurements of each service per row', parseCount, 3)
  .option('--seconds <n>', 'length of a measurement', parseCount, 4)
  .option('--only <rows>', `rows to measure, of ${scenarioNames.join()}`, parseRows)
  .option('--measures', 'lets lists of <new> be filtered by three values of each stream')
  .option('--groups <n>', 'groups of 1,000 devices', parseCount, 100)
  .parse();

function parseRows(text: string): ScenarioName[] {
  return text.split(',').map((text) => {
    const name = scenarioNames.find((candidate) => candidate === text);
    if (name === undefined) throw new InvalidArgumentError(`there is no row ${text}.`);
    return name;
  });
}

async function main(environment: Environment): Promise<void> {
  const { rounds, seconds, only, groups, measures } = program.opts<Options>();
  const [oldCheckout = '', newCheckout = ''] = program.processedArgs as string[];
  const services = {
    old: await startCheckout(environment, 'old', oldCheckout, groups),
    new: await startCheckout(environment, 'new', newCheckout, groups),
  };
  if (measures) await declareMeasures(services.new.client);
  const measureOptions = { mongod_pid: environment.mongod.pid, generator: httpGenerator, rounds, seconds };
  const table = [header];
  const failures: string[] = [];
  for (const name of scenarioNames.filter((candidate) => only?.includes(candidate) ?? true)) {
    const createSide = <Name extends 'old' | 'new'>(side: Name) => {
      const { server, scenarios } = services[side];
      return { name: side, server, createRequests: scenarios[name].createRequests };
    };
    const { connections } = services.new.scenarios[name];
    const sides = [createSide('old'), createSide('new')];
    try {
      const samples = await measureInTurns({ name, connections }, sides, measureOptions);
      const [oldMedian, newMedian] = [medianSample(samples.old), medianSample(samples.new)];
      const ratios = pairRatios(samples.new, samples.old);
      const ratio = newMedian.per_second / oldMedian.per_second;
      const range = [Math.min(...ratios), Math.max(...ratios)].map((value) => value.toFixed(3)).join(' … ');
      const cpuTimes = [
        ...[oldMedian.server_cpu_s, newMedian.server_cpu_s],
        ...[oldMedian.mongod_cpu_s, newMedian.mongod_cpu_s],
      ].map((cpu_s) => cpu_s.toFixed(3));
      table.push([name, formatRate(oldMedian), formatRate(newMedian), ratio.toFixed(3), range, ...cpuTimes]);
    } catch (error) {
      failures.push(`FAILED ${name}: ${error instanceof Error ? error.message : error}`);
      printProgress(failures.at(-1) ?? '');
    }
  }
  const summary = `${rounds} rounds of ${seconds} s; medians; ratio: new / old`;
  console.log([summary, formatTable(table), ...failures].filter(Boolean).join('\n\n'));
  process.exitCode = failures.length === 0 ? 0 : 1;
}

/** Starts the service of a checkout on its own database and loads the test fleet. */
async function startCheckout(
  { folder, mongod, closers }: Environment,
  name: 'old' | 'new',
  checkout: string,
  groupCount: number,
): Promise<CheckoutService> {
  const key = randomBytes(16).toString('hex');
  const database = `compare-${name}`;
  const db = mongod.db(database);
  const server = await startService({ folder, uri: mongod.uri(database), key, checkout });
  closers.push(server.stop);
  printProgress(`${name}: ${checkout}`);
  const groups = Array.from({ length: groupCount }, (_, number) => ({ number, devices: devices_per_group }));
  const client = createClient(server.url, key);
  await createGroups(client, groups);
  await loadDevices({ client, db, groups });
  await loadStreams(client, db, deviceId(0, 0));
  return { server, client, scenarios: createScenarios({ db, key, groups }) };
}

/** Declares measures with `filter`, and waits until the stored streams have been read. */
async function declareMeasures(client: Client): Promise<void> {
  const paths = ['temperature', 'humidity', 'battery_mv'];
  const measures = paths.map((path) => ({ path, filter: true }));
  await client.send('POST', '/models/', { name: 'Weather', measures });
  const list = `/devices/?max=1&${paths.map((path) => `latest.${path}=0`).join('&')}`;
  while (!(await client.send('GET', list).then(Boolean, () => false))) await sleep(500);
}

await withEnvironment(main);
