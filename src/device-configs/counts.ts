import { read_limit_ms } from '../db/database.js';
import { runPipeline } from '../db/raw-find.js';
import { statesOf } from '../device-state/store.js';
import { AppError } from '../errors.js';
import type { Endpoint } from '../http/context.js';
import { createCounting } from '../http/count-endpoint.js';
import { runInParallel } from '../lib/parallel.js';
import { countParts, type OperationContext } from '../objects/context.js';
import { compile } from '../objects/select/compile.js';
import { type Counts, toCounts } from '../objects/select/counts.js';
import { readIds } from '../objects/select/read.js';
import { statesByEntry } from '../objects/select/related-devices.js';
import {
  buildEntryConditions,
  byConfig,
  type ConfigEntry,
  configStatuses,
  max_config_text,
} from '../resources/device/configs.js';
import { device } from '../resources/index.js';
import { integer } from '../schema/fields/number.js';
import { choice, text } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { describeObject } from '../schema/openapi/bodies.js';

/** Creates the endpoint that counts devices by their configuration files (reference/device-configs.md#fleet). */
export function createConfigCounts(): Endpoint {
  return {
    operationId: 'countDeviceConfigs',
    path: '/devices/deviceconfigs/counts/',
    tag: 'deviceconfigs',
    summary: 'Count devices by the versions of their configuration files',
    ...createCounting(device, {
      schema: countSchema,
      count: async (ctx, request) => ({ ...(await countConfigs(ctx, request)), columns }),
    }),
  };
}

const columns = ['name', 'desired', 'reported', 'status', 'count'];

const version = optional(text(max_config_text), { about: 'Version; null: none.', example: '1.0' });
const countSchema = describeObject(
  {
    name: required(text(max_config_text), { about: 'Name of the file.', example: 'pump.json' }),
    desired: version,
    reported: version,
    status: required(choice(...configStatuses), { about: 'State of the file on these devices.', example: 'applied' }),
    count: required(integer({ min: 0 }), { about: 'Number of devices.', example: 12 }),
  },
  ({ presence, type }) => (presence === 'optional' ? { ...type.schema, type: ['string', 'null'] } : type.schema),
  { title: 'DeviceConfigCount', description: 'Devices with the same versions of a file.' },
);

interface Row {
  _id: ConfigEntry;
  count: number;
}

/** The members of an entry, in the order by which equal counts are sorted. */
const shown = [{ name: 'name' }, { name: 'status' }, { name: 'desired' }, { name: 'reported' }] as const;
/** Different combinations of file, versions and state: devices choose the versions that they report. */
const max_combinations = 10_000;
const batch_size = 1000;
/** An index finds so many states faster than all states of an account are read, in another order. */
const max_found = 20_000;
const sample_size = 100;

/** Counts the configuration files of the devices that match (reference/device-configs.md#fleet). */
async function countConfigs(ctx: OperationContext, request: ListRequest): Promise<Counts> {
  const conditions = buildEntryConditions(request.params);
  const counts = new Map<string, Row>();
  const add = async (part: Part) => {
    for (const { _id, count } of await countEntries(ctx, part, conditions)) {
      const key = JSON.stringify(_id);
      counts.set(key, { _id, count: count + (counts.get(key)?.count ?? 0) });
    }
    if (counts.size > max_combinations)
      throw new AppError('badParameter', { config: `more than ${max_combinations} combinations: set more filters` });
  };
  const others = Object.fromEntries(
    Object.entries(request.params).filter(([param]) => !Object.hasOwn(byConfig.params, param)),
  );
  const { max: _max, format: _format, ...filters } = others;
  const isWhole = Object.keys(filters).length === 0 && request.paths === undefined && ctx.limit === undefined;
  if (isWhole) await runInParallel(await divideAccount(ctx, conditions), countParts(ctx.store, 2), add);
  else for await (const part of selectStates(ctx, { ...request, params: others })) await add(part);
  const rows = [...counts.values()].map(({ _id, count }) => ({ values: shown.map(({ name }) => _id[name]), count }));
  return toCounts(rows, shown, request.max);
}

interface Part {
  filter: object;
  hint: Readonly<Record<string, 1>>;
}

/** The states of an account: at once by the entries that are counted if these are few, else in two halves by device. */
async function divideAccount({ store, account }: OperationContext, conditions: object): Promise<readonly Part[]> {
  const states = statesOf(store.db);
  const options = { hint: statesByEntry, limit: max_found, maxTimeMS: read_limit_ms };
  const found = await states.countDocuments({ account, configs: matchEntry(conditions) }, options);
  if (found < max_found) return [{ filter: { account }, hint: statesByEntry }];
  const sample = [{ $sample: { size: sample_size } }, { $match: { account } }, { $project: { device: 1 } }];
  const sampled = await runPipeline<{ device: string }>(states, sample);
  const devices = sampled.map(({ device: id }) => id).sort();
  const middle = devices[Math.floor(devices.length / 2)] ?? '';
  return [{ $lt: middle }, { $gte: middle }].map((range) => ({
    filter: { account, device: range },
    hint: { account: 1, device: 1 },
  }));
}

/** Yields the states of some of the devices that match each. */
async function* selectStates(ctx: OperationContext, request: ListRequest): AsyncGenerator<Part> {
  for await (const ids of readIds(ctx, await compile(ctx, device, request), batch_size))
    yield { filter: { parent: { $in: ids } }, hint: { parent: 1 } };
}

function matchEntry(conditions: object) {
  return { $elemMatch: { name: { $gt: '' }, ...conditions } };
}

/** Groups equal lists of files first, which takes half as long as to unwind all of them. */
function countEntries({ store }: OperationContext, { filter, hint }: Part, conditions: object): Promise<Row[]> {
  const ofEntry = Object.fromEntries(Object.entries(conditions).map(([field, equal]) => [`_id.${field}`, equal]));
  const pipeline = [
    { $match: { ...filter, configs: matchEntry(conditions) } },
    { $group: { _id: '$configs', count: { $sum: 1 } } },
    { $unwind: '$_id' },
    { $match: ofEntry },
    { $group: { _id: '$_id', count: { $sum: '$count' } } },
    { $limit: max_combinations + 1 },
  ];
  return runPipeline(statesOf(store.db), pipeline, { hint });
}
