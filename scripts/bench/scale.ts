import { randomBytes } from 'node:crypto';
import { Command, Option } from 'commander';
import { clientOf, createGroups, type Group, groupId, loadDevices } from './data.js';
import { onStage, type Stage, wholeNumber } from './environment.js';
import { findGenerator } from './generator.js';
import { median } from './measure.js';
import { say } from './progress.js';
import { markdown } from './report.js';
import { type Server, startService } from './server.js';

interface Options {
  devices: number;
  rounds: number;
  seconds: number;
  generator?: string;
}

/** A few devices have a group of their own, all others share one. */
const few = 100;
const goal = 2;
const small = 1000;

const options = new Command('bench:scale')
  .description('Measures what lists cost in a large fleet: the first 20 devices and the exact total.')
  .option('--devices <n>', 'devices of the large fleet', wholeNumber, 1_000_000)
  .option('--rounds <n>', 'pairs of measurements', wholeNumber, 5)
  .option('--seconds <n>', 'length of a measurement', wholeNumber, 3)
  .addOption(new Option('--generator <name>', 'default: wrk where it is on PATH').choices(['wrk', 'autocannon']))
  .parse()
  .opts<Options>();

interface List {
  about: string;
  path: string;
  /** Of how many devices, in a fleet of so many. */
  total(devices: number): number;
}

const lists: List[] = [
  { about: 'all devices', path: '/devices/?max=20', total: (devices) => devices },
  { about: `a group of ${few}`, path: `/groups/${groupId(0)}/devices/?max=20`, total: () => few },
  {
    about: 'the group of all others',
    path: `/groups/${groupId(1)}/devices/?max=20`,
    total: (devices) => devices - few,
  },
];

async function main(stage: Stage): Promise<void> {
  const key = randomBytes(16).toString('hex');
  const generator = await findGenerator(stage.folder, options.generator);
  const fleets: [number, Server][] = [];
  for (const devices of [small, options.devices]) fleets.push([devices, await fleet(stage, key, devices)]);
  const table = [['first 20 and total of', ...fleets.map(([devices]) => `of ${devices} devices`), 'ratio', 'goal']];
  for (const { about, path, total } of lists) {
    const requests = { method: 'GET', headers: { 'service.apikey': key }, paths: [path] } as const;
    const times_ms: number[][] = fleets.map(() => []);
    const measure = async ({ url }: Server, seconds: number) => {
      const { p50_ms, failed } = await generator.run({ url, requests, connections: 1, seconds });
      if (failed > 0) throw new Error(`${failed} requests for ${path} failed`);
      return p50_ms;
    };
    for (const [devices, service] of fleets) {
      const { total_documents } = await clientOf(service.url, key).send('GET', path);
      if (total_documents !== total(devices))
        throw new Error(`${path} tells of ${total_documents} at ${devices} devices`);
      await measure(service, 1);
    }
    for (let round = 1; round <= options.rounds; round++) {
      for (const [nth, [devices, service]] of fleets.entries()) {
        const time_ms = await measure(service, options.seconds);
        times_ms[nth]?.push(time_ms);
        say(`${about}, ${round}/${options.rounds}, ${devices} devices: ${time_ms.toFixed(2)} ms`);
      }
    }
    const [few_ms = Number.NaN, many_ms = Number.NaN] = times_ms.map(median);
    const times = [few_ms, many_ms].map((time) => `${time.toFixed(2)} ms`);
    table.push([about, ...times, (many_ms / few_ms).toFixed(2), `≤ ${goal}`]);
  }
  console.log(markdown(table));
}

/** A service on a database of its own with so many devices. */
async function fleet({ folder, mongod, closers }: Stage, key: string, devices: number): Promise<Server> {
  const name = `bench-${devices}`;
  const service = await startService({ folder, uri: mongod.uri(name), key });
  closers.push(service.stop);
  const client = clientOf(service.url, key);
  const groups: Group[] = [
    { number: 0, devices: few },
    { number: 1, devices: devices - few },
  ];
  await createGroups(client, groups);
  const begun = performance.now();
  await loadDevices({ client, db: mongod.db(name), groups });
  say(`loaded ${devices} devices in ${Math.round((performance.now() - begun) / 1000)} s`);
  return service;
}

await onStage(main);
