import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import mongoose, { type mongo } from 'mongoose';
import { createIdGenerator } from '../../src/db/ids.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { readCpuSeconds } from './process.js';
import { printProgress, startProgressBar } from './progress.js';
import { formatTable } from './report.js';

interface Options {
  streams: number;
  devices: number;
  cache: string;
  only: string[];
}

/** A measurement of a device. */
interface Stream {
  number: number;
  device: string;
  /** Internal id of the device. */
  parent: mongo.UUID;
  at: number;
  data: object;
}

/** A way to store streams. */
interface Variant {
  name: string;
  options: mongo.CreateCollectionOptions;
  index?: mongo.IndexSpecification;
  toDocument(stream: Stream): mongo.Document;
  /** Streams of a device. */
  buildFilter(stream: Pick<Stream, 'device' | 'parent'>): mongo.Document;
  order: Record<string, 1>;
}

const { Binary, Double, Long, MaxKey } = mongoose.mongo;
const people = { owner: 'admin', updater: 'admin' };
const newId = createIdGenerator(() => performance.timeOrigin + performance.now());

const engine = (configString: string) => ({ storageEngine: { wiredTiger: { configString } } });
const clusteredIndex = { key: { _id: 1 }, unique: true } as const;
const numberOf = ({ at, number }: Stream) =>
  Long.fromNumber(at * 1000)
    .shiftLeft(22)
    .or(number & 0xffff);

/** A document for each stream, in an index by device and time: version 0.2.0. */
const plain = (block_compressor: string): Variant => ({
  name: `plain ${block_compressor}`,
  options: engine(`block_compressor=${block_compressor}`),
  index: { account: 1, device: 1, at: 1, _id: 1 },
  toDocument: ({ device, parent, at, data }) => ({
    ...{ _id: newId(), account: 'demo', parent, device, _t: 'str', protocol: 'mqtt', at, data, ...people },
    created_at: at,
  }),
  buildFilter: ({ device }) => ({ account: 'demo', device }),
  order: { at: 1, _id: 1 },
});

/** Clustered by the text of the device's identifier, with all fields that are not in the key. */
const byText = (name: string, config: string, isBare = false): Variant => ({
  name: `${isBare ? 'bare' : 'text'} ${name}`,
  options: { clusteredIndex, ...engine(config) },
  toDocument: (stream) => ({
    _id: { account: 'demo', device: stream.device, at: new Double(stream.at), n: numberOf(stream) },
    parent: stream.parent,
    ...(!isBare && { _t: 'str', protocol: 'mqtt' }),
    data: stream.data,
    ...(!isBare && { owner: 'admin' }),
  }),
  buildFilter: ({ device, parent }) => ({
    _id: { $gte: { account: 'demo', device }, $lt: { account: 'demo', device, at: new MaxKey() } },
    parent,
  }),
  order: { _id: 1 },
});

/** Clustered by 32 bytes: the device's internal id, time and number. */
const byBinary = (name: string, config: string): Variant => ({
  name: `binary ${name}`,
  options: { clusteredIndex, ...engine(config) },
  toDocument: (stream) => ({ _id: new Binary(bytesOf(stream)), data: stream.data }),
  buildFilter: ({ parent }) => ({
    _id: { $gte: new Binary(keyBytes(parent, 0)), $lte: new Binary(keyBytes(parent, 255)) },
  }),
  order: { _id: 1 },
});

function keyBytes(parent: mongo.UUID, filling: number): Buffer {
  return Buffer.concat([parent.buffer, Buffer.alloc(16, filling)]);
}

function bytesOf(stream: Stream): Buffer {
  const key = keyBytes(stream.parent, 0);
  key.writeDoubleBE(stream.at, 16);
  key.writeBigInt64BE(numberOf(stream).toBigInt(), 24);
  return key;
}

const small = 'memory_page_max=1m';
const leaves = (size: string) => `${small},leaf_page_max=${size}`;
const variants: readonly Variant[] = [
  ...['snappy', 'zstd'].map(plain),
  byText('snappy', 'block_compressor=snappy'),
  byText('zstd', 'block_compressor=zstd'),
  byText('zstd 1m', `block_compressor=zstd,${small}`),
  byText('zstd 1m', `block_compressor=zstd,${small}`, true),
  byText('zstd 16K', `block_compressor=zstd,${leaves('16K')}`),
  byText('zstd 8K', `block_compressor=zstd,${leaves('8K')}`),
  byText('zstd 8K 512', `block_compressor=zstd,${leaves('8K')},allocation_size=512B`),
  byText('zstd 16K 512', `block_compressor=zstd,${leaves('16K')},allocation_size=512B`),
  byText('zstd 4K', `block_compressor=zstd,${leaves('4K')}`),
  byText('snappy 8K', `block_compressor=snappy,${leaves('8K')}`),
  byBinary('zstd 1m', `block_compressor=zstd,${small}`),
];
/** Streams of one command, as a busy service inserts them. */
const batch_size = 2000;
/** Time between two streams of a device. */
const period_s = 300;
const pages = 50;
/** Prime to usual numbers of devices. */
const stride = 48_271;
const read_cache = '128M';

const options = new Command('bench:storage')
  .description(
    'Measures the bytes of a stream on disk and the cost to insert and to read it, by layout and compressor.',
  )
  .option('--streams <n>', 'streams of each variant', parseCount, 1_000_000)
  .option('--devices <n>', 'devices that send them in turn', parseCount, 2000)
  .option('--cache <size>', 'cache of the database while it writes', '2G')
  .option(
    '--only <names>',
    `some of: ${variants.map(({ name }) => name).join(', ')}`,
    (names) => names.split(','),
    variants.map(({ name }) => name),
  )
  .parse()
  .opts<Options>();

const parents = Array.from({ length: options.devices }, () => new mongoose.mongo.UUID(randomUUID()));
const deviceOf = (index: number) => ({
  device: `Weather station ${index}@demo`,
  parent: parents[index] ?? new mongoose.mongo.UUID(),
});

/** Generates the measurements of a weather station: every device in turn. */
function* generateBatches(count: number): Generator<Stream[]> {
  const round = (value: number) => Math.round(value * 100) / 100;
  for (let done = 0; done < count; done += batch_size) {
    yield Array.from({ length: Math.min(batch_size, count - done) }, (_, index) => {
      const number = done + index;
      const at = Math.floor(1_700_000_000 + (number / options.devices) * period_s);
      const warmth = Math.sin((at / 86_400) * 2 * Math.PI);
      const data = {
        temperature_c: round(12 + 6 * warmth + Math.random()),
        humidity_percent: round(60 - 15 * warmth + 3 * Math.random()),
        wind_m_s: round(4 + 3 * Math.random()),
        battery_v: round(12.6 - 0.3 * Math.random()),
      };
      // no device is beside the one that sent before it
      return { number, ...deviceOf((number * stride) % options.devices), at, data };
    });
  }
}

/** Stores all streams in one variant. @returns a row of the table */
async function measure({ mongod }: Environment, variant: Variant): Promise<string[]> {
  const { name, options: creation, index, toDocument } = variant;
  const db = mongod.db('bench-storage');
  const admin = db.admin();
  const streams = await db.createCollection(`streams ${name}`, creation);
  if (index !== undefined) await streams.createIndex(index);
  await setCache(db, options.cache);
  const bar = startProgressBar(name, options.streams);
  const before = await readCosts(mongod.pid, db);
  let done = 0;
  for (const batch of generateBatches(options.streams)) {
    await streams.insertMany(batch.map(toDocument), { ordered: false, forceServerObjectId: true });
    done += batch.length;
    bar.update(done);
  }
  bar.stop();
  await admin.command({ fsync: 1 });
  const after = await readCosts(mongod.pid, db);
  const stats = await db.command({ collStats: streams.collectionName });
  const perStream = (amount: number) => (amount / options.streams).toFixed(1);
  await setCache(db, read_cache);
  return [
    name,
    ...[stats.size, stats.storageSize, stats.totalIndexSize, stats.storageSize + stats.totalIndexSize].map(perStream),
    ...[(after.cpu_s - before.cpu_s) * 1e6, after.written_bytes - before.written_bytes].map(perStream),
    `${(after.pages_read - before.pages_read).toFixed(0)}`,
    `${(await measureReads(streams, variant)).toFixed(1)} ms`,
  ];
}

async function setCache(db: mongo.Db, size: string): Promise<void> {
  await db.admin().command({ setParameter: 1, wiredTigerEngineRuntimeConfig: `cache_size=${size}` });
}

/** Reads what the database has used so far. */
async function readCosts(pid: number, db: mongo.Db) {
  const { wiredTiger } = await db.admin().command({ serverStatus: 1 });
  return {
    cpu_s: await readCpuSeconds(pid),
    written_bytes: wiredTiger['block-manager']['bytes written'] as number,
    pages_read: wiredTiger.cache['pages read into cache'] as number,
  };
}

/** Reads up to 500 streams of one device after another. @returns the mean time */
async function measureReads(streams: mongo.Collection, { buildFilter, order }: Variant): Promise<number> {
  const startedAt = performance.now();
  for (let page = 0; page < pages; page++) {
    const filter = buildFilter(deviceOf(Math.floor((page * options.devices) / pages)));
    await streams.find(filter, { sort: order, limit: 500, batchSize: 500, raw: true }).toArray();
  }
  return (performance.now() - startedAt) / pages;
}

async function main(environment: Environment): Promise<void> {
  const db = environment.mongod.db('bench-storage');
  const sizes = ['BSON', 'data', 'indexes', 'total'];
  const table = [['layout, compressor', ...sizes, 'µs insert', 'written', 'pages read', '500 read']];
  for (const variant of variants.filter(({ name }) => options.only.includes(name))) {
    const row = await measure(environment, variant);
    printProgress(row.join('  '));
    table.push(row);
    await db.dropCollection(`streams ${variant.name}`);
  }
  console.log(`bytes and CPU of mongod per stream; ${options.streams} streams of ${options.devices} devices`);
  console.log(formatTable(table));
}

await withEnvironment(main);
