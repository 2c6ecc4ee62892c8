import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import { parse } from 'csv-parse/sync';
import { createDeviceModel, type ModelCondition } from '../checks/alarm-model.js';
import { deviceId } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { type Fleet, startFleet } from './loaded-fleet.js';
import { printProgress } from './progress.js';
import { formatTable } from './report.js';

/** A recorded series, and the threshold that its rules watch. */
interface Trace {
  file: string;
  op: '<' | '>';
  value: number;
  clear: number;
}

/** A recorded value. */
interface Sample {
  /** Seconds since the first one. */
  after_s: number;
  value: number;
}

interface Replay extends Trace {
  device: string;
  samples: readonly Sample[];
}

/** A raised alarm as it is stored. */
interface StoredAlarm {
  raised_at: number;
  closed_at?: number;
}

const program = new Command('bench:replay')
  .description('Replays recorded series through alarm rules with and without hysteresis and `for`.')
  .argument(
    '<traces...>',
    'FILE:OP:VALUE:CLEAR of CSV files with a head, then time and value: speed.csv:<:50:55',
    collectTraces,
  )
  .option('--speed <n>', 'how much faster than recorded', parseCount, 1000)
  .option('--days <n>', 'length of what is replayed', parseCount, 10)
  .option('--for <seconds>', '`for` of the rules that have it', parseCount, 1)
  .parse();
const options = program.opts<{ speed: number; days: number; for: number }>();
const [traces] = program.processedArgs as [readonly Trace[]];

const variants = [
  { name: 'plain', hasClear: false, hasFor: false },
  { name: 'clear', hasClear: true, hasFor: false },
  { name: 'for', hasClear: false, hasFor: true },
  { name: 'clear and for', hasClear: true, hasFor: true },
] as const;
type Variant = (typeof variants)[number];

/** An alarm has flapped if it is raised again so soon after its end, in recorded time. */
const flapping_s = 3600;

function collectTraces(text: string, previous: readonly Trace[] = []): readonly Trace[] {
  const [, file, op, value, clear] = /^(.+):([<>]):(-?[\d.]+):(-?[\d.]+)$/.exec(text) ?? [];
  if (file === undefined || (op !== '<' && op !== '>')) throw new InvalidArgumentError('must be FILE:OP:VALUE:CLEAR.');
  return [...previous, { file, op, value: Number(value), clear: Number(clear) }];
}

async function main(environment: Environment): Promise<void> {
  const fleet = await startFleet(environment, 'replay', [{ number: 0, devices: traces.length }]);
  const replays = await Promise.all(
    traces.map(async (trace, index) => ({
      ...trace,
      device: decodeURIComponent(deviceId(0, index)),
      samples: await readSamples(trace.file),
    })),
  );
  for (const replay of replays) for (const variant of variants) await createRule(fleet, replay, variant);
  // until all rules have looked at what is stored
  await sleep(5000);
  const table = [['trace', 'streams', 'rule', 'raised', 'flapped', 'median length, min', 'as the model']];
  const begun = Date.now() / 1000;
  for (const rows of await Promise.all(replays.map((replay) => play(fleet, replay, begun)))) table.push(...rows);
  console.log(formatTable(table));
}

/** Reads the samples in the order of the file, which need not be that of their times. */
async function readSamples(file: string): Promise<readonly Sample[]> {
  const rows: string[][] = parse(await readFile(file, 'utf8'), { from_line: 2 });
  const timeOf = ([time = '']: readonly string[]) => Date.parse(`${time.replace(' ', 'T')}Z`) / 1000;
  const [first = []] = rows;
  return rows
    .map((row) => ({ after_s: timeOf(row) - timeOf(first), value: Number(row[1]) }))
    .filter(({ after_s }) => after_s <= options.days * 86_400);
}

const conditionOf = ({ op, value, clear }: Trace, { hasClear }: Variant): ModelCondition => ({
  path: 'value',
  op,
  value,
  ...(hasClear && { clear }),
});

const ruleOf = ({ device }: Replay, { name }: Variant) => `${device.split('@')[0]} ${name}`;

async function createRule({ client }: Fleet, replay: Replay, variant: Variant): Promise<void> {
  await client.send('POST', '/alarmrules/', {
    name: ruleOf(replay, variant),
    severity: 'info',
    conditions: [conditionOf(replay, variant)],
    for: variant.hasFor ? options.for : 0,
    id_device: replay.device,
  });
}

/** Sends each sample at its time. @returns a row for each rule @param begun epoch seconds */
async function play(fleet: Fleet, replay: Replay, begun: number): Promise<string[][]> {
  const { device, samples } = replay;
  for (const { after_s, value } of samples) {
    const at = Number((begun + after_s / options.speed).toFixed(3));
    await sleep(Math.max(0, at * 1000 + 1 - Date.now()));
    await fleet.client.send('POST', '/streams/', [{ device, at, data: { value } }]);
  }
  // until the last `for` has passed
  await sleep((options.for + 5) * 1000);
  printProgress(`${basename(replay.file)} has been sent`);
  return Promise.all(variants.map((variant) => describeRule(fleet, replay, variant)));
}

async function describeRule({ db, client }: Fleet, replay: Replay, variant: Variant): Promise<string[]> {
  const { device, file, samples } = replay;
  const shown = await client.send('GET', `/alarmrules/?name=${encodeURIComponent(ruleOf(replay, variant))}`);
  const [{ id_developer: rule }] = shown.result as [{ id_developer: string }];
  const query = { device, rule, account: { $exists: true } };
  const alarms = await db
    .collection<StoredAlarm>('alarms')
    .find(query, { sort: { _id: 1 } })
    .toArray();
  const flapping = alarms.filter(({ raised_at }, index) => {
    const { closed_at = raised_at } = alarms[index - 1] ?? { closed_at: Number.NEGATIVE_INFINITY };
    return (raised_at - closed_at) * options.speed < flapping_s;
  });
  const lengths_s = alarms.map(({ raised_at, closed_at = raised_at }) => (closed_at - raised_at) * options.speed);
  const length_s = lengths_s.toSorted((a, b) => a - b)[Math.floor(lengths_s.length / 2)] ?? 0;
  const events = await db.collection('events').countDocuments({ id_developer: device, 'data.rule': rule });
  const transitions = alarms.length + alarms.filter(({ closed_at }) => closed_at !== undefined).length;
  const isExpected = variant.hasFor ? events === transitions : events === countTransitions(replay, variant);
  return [
    ...[basename(file), `${samples.length}`, variant.name, `${alarms.length}`, `${flapping.length}`],
    ...[(length_s / 60).toFixed(0), isExpected ? 'yes' : 'no'],
  ];
}

/** Counts the transitions of a rule without `for` in the plain model. */
function countTransitions(replay: Replay, variant: Variant): number {
  const model = createDeviceModel([{ name: variant.name, match: 'all', conditions: [conditionOf(replay, variant)] }]);
  for (const { after_s, value } of replay.samples) model.receive([{ at: after_s, data: { value } }]);
  return model.transitionsOf(variant.name).length;
}

await withEnvironment(main);
