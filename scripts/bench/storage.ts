import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import mongoose, { type mongo } from 'mongoose';
import { createIdGenerator } from '../../src/db/ids.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { printProgress, startProgressBar } from './progress.js';
import { formatTable } from './report.js';

interface Options {
  streams: number;
  devices: number;
  only: string[];
}

/** A way to store streams. */
interface Variant {
  name: string;
  options: mongo.CreateCollectionOptions;
  /** Time-series collections have one time field of type date, and one field that groups their buckets. */
  isTimeSeries?: true;
}

const compressed = (block_compressor: string): Variant => ({
  name: block_compressor,
  options: { storageEngine: { wiredTiger: { configString: `block_compressor=${block_compressor}` } } },
});
const variants: readonly Variant[] = [
  ...['snappy', 'zstd', 'zlib'].map(compressed),
  {
    name: 'time series',
    options: { timeseries: { timeField: 'at', metaField: 'device', granularity: 'minutes' } },
    isTimeSeries: true,
  },
];
/** The index of the service (docs/indexes.md), and a shorter one that could replace it. */
const indexes = { used: { account: 1, device: 1, at: 1, _id: 1 }, 'by parent': { parent: 1, at: 1 } } as const;
const batch_size = 5000;
/** Time between two streams of a device. */
const period_s = 300;
const pages = 20;
const read_cache = '256M';

const options = new Command('bench:storage')
  .description('Measures the bytes of a stream on disk and the time to insert and to read it, by block compressor.')
  .option('--streams <n>', 'streams of each variant', parseCount, 10_000_000)
  .option('--devices <n>', 'devices that send them in turn', parseCount, 5000)
  .option(
    '--only <names>',
    `some of: ${variants.map(({ name }) => name).join(', ')}`,
    (names) => names.split(','),
    variants.map(({ name }) => name),
  )
  .parse()
  .opts<Options>();

/** Generates streams as the ingest stores them, every device in turn. */
function* generateBatches(count: number, devices: number): Generator<mongo.Document[]> {
  const startedAt = 1_700_000_000;
  let second = startedAt;
  const newId = createIdGenerator(() => second * 1000);
  const parents = Array.from({ length: devices }, () => new mongoose.mongo.UUID(randomUUID()));
  const names = parents.map((_, index) => `Weather station ${index}@demo`);
  for (let done = 0; done < count; done += batch_size) {
    yield Array.from({ length: Math.min(batch_size, count - done) }, (_, index) => {
      const number = done + index;
      second = startedAt + (number / devices) * period_s;
      const at = Math.floor(second);
      const warmth = Math.sin((at / 86_400) * 2 * Math.PI);
      const round = (value: number) => Math.round(value * 100) / 100;
      const data = {
        temperature_c: round(12 + 6 * warmth + Math.random()),
        humidity_percent: round(60 - 15 * warmth + 3 * Math.random()),
        wind_m_s: round(4 + 3 * Math.random()),
        battery_v: round(12.6 - 0.3 * Math.random()),
      };
      const [parent, device] = [parents[number % devices], names[number % devices]];
      const people = { owner: 'admin', updater: 'admin' };
      return {
        _id: newId(),
        account: 'demo',
        parent,
        device,
        _t: 'str',
        protocol: 'mqtt',
        at,
        data,
        ...people,
        created_at: at,
      };
    });
  }
}

/** Stores all streams in one variant. @returns a row of the table */
async function measure(db: mongo.Db, { name, options: creation, isTimeSeries }: Variant): Promise<string[]> {
  const admin = db.admin();
  const streams = await db.createCollection(`streams ${name}`, creation);
  if (isTimeSeries === undefined) for (const key of Object.values(indexes)) await streams.createIndex(key);
  await admin.command({ setParameter: 1, wiredTigerEngineRuntimeConfig: 'cache_size=4G' });
  const bar = startProgressBar(name, options.streams);
  const startedAt = performance.now();
  let done = 0;
  for (const batch of generateBatches(options.streams, options.devices)) {
    const stored = isTimeSeries ? batch.map((one) => ({ ...one, at: new Date(one.at * 1000) })) : batch;
    await streams.insertMany(stored, { ordered: false, forceServerObjectId: true });
    done += batch.length;
    bar.update(done);
  }
  bar.stop();
  const insert_s = (performance.now() - startedAt) / 1000;
  await admin.command({ fsync: 1 });
  // streams of one device lie on many pages, of which few are in a small cache
  await admin.command({ setParameter: 1, wiredTigerEngineRuntimeConfig: `cache_size=${read_cache}` });
  const stats = await db.command({ collStats: streams.collectionName });
  const perStream = (bytes: number | undefined) => (bytes === undefined ? '' : (bytes / options.streams).toFixed(1));
  const index_bytes = Object.values(indexes).map((key) => stats.indexSizes[Object.entries(key).flat().join('_')]);
  const bytes = { data: stats.storageSize, id: stats.indexSizes._id_ };
  const total = bytes.data + (isTimeSeries ? stats.totalIndexSize : bytes.id + index_bytes[0]);
  return [
    name,
    perStream(isTimeSeries ? undefined : stats.size),
    ...[bytes.data, bytes.id, ...index_bytes, total].map(perStream),
    (options.streams / insert_s).toFixed(0),
    `${(await measureReads(streams, isTimeSeries)).toFixed(1)} ms`,
  ];
}

/** Reads 1,000 streams of one device after another. @returns the mean time of a page */
async function measureReads(streams: mongo.Collection, isTimeSeries?: true): Promise<number> {
  const startedAt = performance.now();
  for (let page = 0; page < pages; page++) {
    const device = `Weather station ${Math.floor((page * options.devices) / pages)}@demo`;
    const filter = isTimeSeries ? { device } : { account: 'demo', device };
    await streams.find(filter, { sort: { at: 1 }, limit: 1000, batchSize: 1000 }).toArray();
  }
  return (performance.now() - startedAt) / pages;
}

async function main({ mongod }: Environment): Promise<void> {
  const db = mongod.db('bench-storage');
  const header = [
    'block compressor',
    'BSON',
    'data',
    '_id',
    ...Object.keys(indexes),
    'total',
    'inserts/s',
    '1,000 read',
  ];
  const table = [header];
  for (const variant of variants.filter(({ name }) => options.only.includes(name))) {
    const row = await measure(db, variant);
    printProgress(row.join('  '));
    table.push(row);
    await db.dropCollection(`streams ${variant.name}`);
  }
  console.log(`bytes per stream on disk; ${options.streams} streams of ${options.devices} devices`);
  console.log(formatTable(table));
}

await withEnvironment(main);
