import { Command } from 'commander';
import { httpGenerator } from './autocannon.js';
import { groupId, waitUntilLogged } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { type Fleet, startFleet } from './loaded-fleet.js';
import { median } from './measure.js';
import { printProgress } from './progress.js';
import { formatTable } from './report.js';

interface Options {
  devices: number;
  rounds: number;
  seconds: number;
}

interface SizedFleet extends Fleet {
  devices: number;
}

/** A list that is measured in fleets of different sizes. */
interface List {
  description: string;
  path: string;
  /** Returns the expected total in a fleet of `devices`. */
  expectedTotal(devices: number): number;
}

const small_fleet = 1000;
/** The devices of a group of their own; all others are in a second group, but a tenth in a third one. */
const small_group = 100;
const max_ratio = 2;
const tenthOf = (devices: number) => devices / 10;
const first_created_at = 1_700_000_000;

const options = new Command('bench:scale')
  .description(
    'Compares lists of a small and a large fleet, and of the large one those of a key that is limited to a tenth: the first 20 devices and the exact total. Then counts the large one by values.',
  )
  .option('--devices <n>', 'devices of the large fleet', parseCount, 1_000_000)
  .option('--rounds <n>', 'measurements of each fleet per list', parseCount, 5)
  .option('--seconds <n>', 'length of a measurement', parseCount, 3)
  .parse()
  .opts<Options>();

const lists: List[] = [
  { description: 'all devices', path: '/devices/?max=20', expectedTotal: (devices) => devices },
  {
    description: `a group of ${small_group}`,
    path: `/groups/${groupId(0)}/devices/?max=20`,
    expectedTotal: () => small_group,
  },
  {
    description: 'the group of all others',
    path: `/groups/${groupId(1)}/devices/?max=20`,
    expectedTotal: (devices) => devices - small_group - tenthOf(devices),
  },
];

/** Queries of the large fleet. The tenth is the last by name and creation, and everywhere by its last change. */
const limitedQueries = (devices: number): readonly string[] => [
  '',
  'type=thermometer',
  'enabled=true',
  `created_at_from=${first_created_at + devices / 2}`,
  `created_at_from=${first_created_at + Math.floor(devices * 0.98)}`,
  'sort=updated_at',
  'sort=created_at',
  'sort=name',
];

/** Values by which all devices of the large fleet are counted. */
const counts: readonly { by: string; goal_ms: number }[] = [
  ...['status', 'id_group', 'id_model', 'type'].map((by) => ({ by, goal_ms: 1000 })),
  ...['type,status', 'firmware,sensor'].map((by) => ({ by, goal_ms: 5000 })),
];

async function main(environment: Environment): Promise<void> {
  const small = await startFleetOf(environment, small_fleet);
  const large = await startFleetOf(environment, options.devices);
  const fleets = [small, large];
  const measure = async ({ service, key }: Pick<Fleet, 'service' | 'key'>, path: string, seconds: number) => {
    const requests = { method: 'GET', headers: { 'service.apikey': key }, paths: [path] } as const;
    const { p50_ms, failed } = await httpGenerator.run({ url: service.url, requests, connections: 1, seconds });
    if (failed > 0) throw new Error(`${failed} requests for ${path} failed`);
    return p50_ms;
  };
  const table = [['first 20 and total of', ...fleets.map(({ devices }) => `of ${devices} devices`), 'ratio', 'goal']];
  for (const { description, path, expectedTotal } of lists) {
    const samples_ms: number[][] = fleets.map(() => []);
    for (const fleet of fleets) {
      const { total_documents } = await fleet.client.send('GET', path);
      if (total_documents !== expectedTotal(fleet.devices))
        throw new Error(`${path} has the total ${total_documents} in a fleet of ${fleet.devices}`);
      await measure(fleet, path, 1);
    }
    for (let round = 1; round <= options.rounds; round++) {
      for (const [index, fleet] of fleets.entries()) {
        const time_ms = await measure(fleet, path, options.seconds);
        samples_ms[index]?.push(time_ms);
        printProgress(`${description}, ${round}/${options.rounds}, ${fleet.devices} devices: ${time_ms.toFixed(2)} ms`);
      }
    }
    table.push([description, ...formatTimes(samples_ms)]);
  }
  console.log(formatTable(table));
  console.log(formatTable(await measureLimitedKey()));
  console.log(formatTable(await measureCounts()));

  async function measureCounts(): Promise<string[][]> {
    const { devices, client } = large;
    const rows = [[`of ${devices} devices, counts by`, 'time', 'goal']];
    for (const { by, goal_ms } of counts) {
      const samples_ms: number[] = [];
      for (let round = 1; round <= options.rounds; round++) {
        const begun_at = performance.now();
        const { total_documents } = await client.send('GET', `/devices/counts/?by=${by}`);
        samples_ms.push(performance.now() - begun_at);
        if (total_documents !== devices) throw new Error(`counts by ${by} have the total ${total_documents}`);
      }
      rows.push([by, `${Math.round(median(samples_ms))} ms`, `≤ ${goal_ms} ms`]);
      printProgress(rows.at(-1)?.join(', ') ?? '');
    }
    return rows;
  }

  async function measureLimitedKey(): Promise<string[][]> {
    const { devices, service, client } = large;
    const body = { username: 'bench', scope: 'read', id_group: groupId(2) };
    const { details } = await client.send('POST', '/apikeys/', body);
    const limited = { service, key: (details as { key: string }).key };
    const rows = [[`of ${devices} devices`, 'unlimited', `limited to ${tenthOf(devices)}`, 'ratio', 'goal']];
    for (const query of limitedQueries(devices)) {
      const path = `/devices/?max=20&${query}`;
      const samples_ms: number[][] = [[], []];
      for (let round = 0; round <= options.rounds; round++)
        for (const [index, access] of [large, limited].entries()) {
          const time_ms = await measure(access, path, round === 0 ? 1 : options.seconds);
          if (round > 0) samples_ms[index]?.push(time_ms);
        }
      rows.push([query === '' ? 'no filter' : query, ...formatTimes(samples_ms)]);
      printProgress(rows.at(-1)?.join(', ') ?? '');
    }
    return rows;
  }
}

/** Formats the medians of two samples in ms, their ratio and the goal. */
function formatTimes(samples_ms: readonly (readonly number[])[]): string[] {
  const [first_ms = Number.NaN, second_ms = Number.NaN] = samples_ms.map(median);
  const times = [first_ms, second_ms].map((time_ms) => `${time_ms.toFixed(2)} ms`);
  return [...times, (second_ms / first_ms).toFixed(2), `≤ ${max_ratio}`];
}

/** Fields of devices that have sent a stream, and whose next one is due long after the end. */
const connected = {
  last_stream_at: first_created_at,
  ...{ stream_due_at: 2 * first_created_at, stream_safe_until: 2 * first_created_at },
  stream_late_from: 2 * first_created_at,
};

/** Starts a service on its own database with a fleet of `devices`. */
async function startFleetOf(environment: Environment, devices: number): Promise<SizedFleet> {
  const groups = [
    { number: 0, devices: small_group },
    { number: 1, devices: devices - small_group - tenthOf(devices) },
    { number: 2, devices: tenthOf(devices) },
  ];
  const startedAt = performance.now();
  const fieldsOf = (position: number) => ({
    created_at: first_created_at + position,
    updated_at: first_created_at + devices + ((position * 7919) % devices),
    firmware: `2.${3 + (position % 5)}.0`,
    ...(position % 2 === 1 && connected),
  });
  const fleet = await startFleet(environment, `bench-${devices}`, groups, { fieldsOf });
  await waitUntilLogged(fleet.db);
  // the checkpoint of what was loaded
  await fleet.db.admin().command({ fsync: 1 });
  printProgress(`loaded ${devices} devices in ${Math.round((performance.now() - startedAt) / 1000)} s`);
  return { ...fleet, devices };
}

await withEnvironment(main);
