import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { Command, InvalidArgumentError } from 'commander';
import { findFreePort, waitUntil } from '../support/service-process.js';
import { httpGenerator } from './autocannon.js';
import { type Client, createClient, createGroups, deviceId, loadDevices, loadStreams } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { type MeasureOptions, measureInTurns, median, medianSample, pairRatios } from './measure.js';
import { mqttGenerator } from './mqtt-load.js';
import { printProgress } from './progress.js';
import { type ComparisonResult, formatComparisons, formatLimits } from './report.js';
import { createScenarios, type Scenario, scenarioNames } from './scenarios.js';
import { type Server, startBaseline, startService } from './server.js';
import { type LimitResult, measureLimits } from './stress.js';

interface Options {
  rounds: number;
  seconds: number;
  only?: string[];
  groups: number;
  json: string;
}

const rowNames: readonly string[] = [...scenarioNames, 'mqtt', 'memory', 'pause'];
const devices_per_group = 1000;
const mqtt_clients = 256;
/** `loadDevices` creates and deletes two devices to compare them. */
const deleted_by_load = 2;
const log_timeout_ms = 300_000;

const options = new Command('bench')
  .description('Compares the service with a bare HTTP server on the same database.')
  .option('--rounds <n>', 'measurements of each server per row', parseCount, 5)
  .option('--seconds <n>', 'length of a measurement', parseCount, 4)
  .option('--only <rows>', `rows to measure, of ${rowNames.join()}`, parseRows)
  .option('--groups <n>', 'groups of 1,000 devices', parseCount, 100)
  .option('--json <file>', 'file for the results', 'bench-results.json')
  .parse()
  .opts<Options>();

function parseRows(text: string): string[] {
  const names = text.split(',');
  const unknownName = names.find((name) => !rowNames.includes(name));
  if (unknownName !== undefined) throw new InvalidArgumentError(`there is no row ${unknownName}.`);
  return names;
}

async function main({ folder, mongod, closers }: Environment): Promise<void> {
  const { rounds, seconds } = options;
  const isSelected = (name: string) => options.only?.includes(name) ?? true;
  const key = randomBytes(16).toString('hex');
  const mqtt_port = await findFreePort();
  const service = await startService({ folder, uri: mongod.uri('bench'), key, mqtt_port });
  closers.push(service.stop);
  const baseline = await startBaseline({ folder, uri: mongod.uri('bench') }, 'baseline');
  closers.push(baseline.stop);

  const groups = Array.from({ length: options.groups }, (_, number) => ({ number, devices: devices_per_group }));
  const db = mongod.db('bench');
  const client = createClient(service.url, key);
  await createGroups(client, groups);
  await loadDevices({ client, db, groups });
  await loadStreams(client, db, deviceId(0, 0));
  printProgress('waiting for the event log');
  const isLogged = async () =>
    (await client.send('GET', '/events/?type=device.deleted&max=1')).total_documents === deleted_by_load;
  await waitUntil(isLogged, log_timeout_ms);

  const results: ComparisonResult[] = [];
  const limits: LimitResult[] = [];
  const failures: string[] = [];
  const attempt = async (name: string, work: () => Promise<void>) => {
    await work().catch((error: unknown) => {
      failures.push(`${name}: ${error instanceof Error ? error.message : error}`);
      printProgress(`FAILED ${failures.at(-1)}`);
    });
  };
  const scenarios = createScenarios({ db, key, groups });
  const measureOptions = { mongod_pid: mongod.pid, generator: httpGenerator, rounds, seconds };
  for (const name of scenarioNames.filter(isSelected))
    await attempt(name, async () => {
      results.push(await compareWithBaseline(name, scenarios[name], { service, baseline }, measureOptions));
    });
  if (isSelected('mqtt'))
    await attempt('mqtt', async () => {
      const baseline_port = await findFreePort();
      const settings = { folder, uri: mongod.uri('bench'), mqtt_port: baseline_port };
      const broker = await startBaseline(settings, 'mqtt-baseline');
      closers.push(broker.stop);
      const servers = {
        service: { ...service, url: `mqtt://127.0.0.1:${mqtt_port}` },
        baseline: { ...broker, url: `mqtt://127.0.0.1:${baseline_port}` },
      };
      const scenario = await prepareMqtt(client);
      results.push(
        await compareWithBaseline('mqtt', scenario, servers, { ...measureOptions, generator: mqttGenerator }),
      );
    });
  if (isSelected('memory') || isSelected('pause'))
    await attempt('memory and pause', async () => {
      const requests = await scenarios['list-json'].createRequests('stress');
      limits.push(...(await measureLimits({ service, generator: httpGenerator, requests, rounds, seconds })));
    });
  const sections = [formatComparisons(results), formatLimits(limits), ...failures.map((line) => `FAILED ${line}`)];
  console.log(sections.filter(Boolean).join('\n\n'));
  const report = { processors: cpus().length, rounds, seconds, results, limits, failures };
  await writeFile(options.json, `${JSON.stringify(report, null, 2)}\n`);
  process.exitCode = failures.length === 0 ? 0 : 1;
}

/** Gives devices credentials, with their identifiers as user names. */
async function prepareMqtt(client: Client): Promise<Scenario> {
  const password = randomBytes(16).toString('hex');
  const paths = Array.from({ length: mqtt_clients }, (_, index) => deviceId(0, index));
  for (const username of paths)
    await client.send('POST', `/mqttdevices/${username}/credentials/`, { username, password });
  const body = '{"data":{"temperature":21.5,"humidity":48,"battery_mv":3312,"sequence":<n>,"flags":["ok"]}}';
  return {
    description: 'store a stream sent over MQTT with QoS 1',
    connections: mqtt_clients,
    createRequests: async () => ({ method: 'POST', headers: { password }, paths, body }),
  };
}

async function compareWithBaseline(
  name: string,
  { description, goal, connections, createRequests, createBaselineRequests }: Scenario,
  servers: { service: Server; baseline: Server },
  measureOptions: MeasureOptions,
): Promise<ComparisonResult> {
  const sides = [
    { name: 'service', server: servers.service, createRequests },
    { name: 'baseline', server: servers.baseline, createRequests: createBaselineRequests ?? createRequests },
  ] as const;
  const { service, baseline } = await measureInTurns({ name, connections }, sides, measureOptions);
  const ratios = pairRatios(service, baseline);
  return {
    row: name,
    description,
    goal,
    ratio: median(ratios),
    ratios,
    service: medianSample(service),
    baseline: medianSample(baseline),
  };
}

await withEnvironment(main);
