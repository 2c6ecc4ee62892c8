import { randomBytes } from 'node:crypto';
import { Command } from 'commander';
import mongoose, { type mongo } from 'mongoose';
import { insertRaw } from '../../src/db/raw-insert.js';
import { readResident_mib } from '../support/instance.js';
import { copyStream } from '../support/stream-copies.js';
import { account, type Client, createClient, createGroups, deviceId, groupId, loadDevices } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { median } from './measure.js';
import { printProgress, startProgressBar } from './progress.js';
import { formatTable } from './report.js';
import { startService } from './server.js';

interface Options {
  devices: number;
  streams: number;
  requests: number;
}

interface LoadedStreams {
  seconds: number;
  first_at: number;
  last_at: number;
}

const options = new Command('bench:fleet')
  .description('Loads a large fleet with its streams and measures start, lists, series, ingest, memory and disk.')
  .option('--devices <n>', 'devices', parseCount, 1_000_000)
  .option('--streams <n>', 'streams, of all devices in turn', parseCount, 50_000_000)
  .option('--requests <n>', 'requests per row, one after the other', parseCount, 30)
  .parse()
  .opts<Options>();

const { BSON } = mongoose.mongo;
const small_group = 100;
const batch_size = 5000;
const batches_in_flight = 2;
/** Time between two streams of a device. */
const period_s = 600;
const mib = 1024 * 1024;

const begun_at = Math.floor(Date.now() / 1000);

/** Stored deadlines of a device: half of the devices are in time for the next hours, the others never sent anything. */
function fieldsOf(position: number): object {
  if (position % 2 === 0) return {};
  const due_at = begun_at + 86_400;
  const deadlines = ['stream', 'status'].flatMap((kind) => [
    [`last_${kind}_at`, begun_at],
    [`${kind}_due_at`, due_at],
    [`${kind}_safe_until`, due_at],
    [`${kind}_late_from`, due_at + 300],
    [`${kind}_late`, false],
  ]);
  return Object.fromEntries(deadlines);
}

/** Inserts streams as the ingest stores them, one of every device in turn, up to now. */
async function loadStreams(db: mongo.Db, sample: mongo.Document): Promise<LoadedStreams> {
  const devices = await db
    .collection('devices')
    .find({ account }, { projection: { id_developer: 1 }, sort: { _id: 1 } })
    .toArray();
  const rounds = Math.ceil(options.streams / devices.length);
  const first_at = begun_at - rounds * period_s;
  let second = first_at;
  const bar = startProgressBar('streams', options.streams);
  const startedAt = performance.now();
  const inFlight: Promise<void>[] = [];
  let done = 0;
  while (done < options.streams) {
    const batch: Uint8Array[] = [];
    for (; batch.length < batch_size && done < options.streams; done++) {
      const device = devices[done % devices.length];
      second = first_at + Math.floor((done / devices.length) * period_s);
      const warmth = Math.sin((second / 86_400) * 2 * Math.PI);
      const data = { temperature: Math.round(1200 + 600 * warmth) / 100, humidity: done % 100, battery_mv: 3312 };
      const place = { device: device?.id_developer, parent: device?._id, at: second };
      batch.push(BSON.serialize({ ...copyStream(sample, place), data }));
    }
    inFlight.push(insertRaw(db, 'streams', batch, { w: 1 }));
    if (inFlight.length === batches_in_flight) await inFlight.shift();
    bar.update(done);
  }
  await Promise.all(inFlight);
  bar.stop();
  return { seconds: (performance.now() - startedAt) / 1000, first_at, last_at: second };
}

/** @returns the times of the first request and of the median of the next ones */
async function measureRequests(client: Client, method: string, path: string, body?: object): Promise<string[]> {
  const times_ms: number[] = [];
  for (let count = 0; count <= options.requests; count++) {
    const startedAt = performance.now();
    await client.send(method, path, body);
    times_ms.push(performance.now() - startedAt);
  }
  const [first_ms = Number.NaN, ...next_ms] = times_ms;
  return [`${first_ms.toFixed(1)} ms`, `${median(next_ms).toFixed(1)} ms`];
}

async function measureDisk(db: mongo.Db, collection: string): Promise<string[]> {
  const { storageSize, totalIndexSize, count } = await db.command({ collStats: collection });
  return [
    `${collection}, ${count}`,
    `data ${(storageSize / mib).toFixed(0)} MiB`,
    `indexes ${(totalIndexSize / mib).toFixed(0)} MiB`,
  ];
}

async function main({ folder, mongod, closers }: Environment): Promise<void> {
  const key = randomBytes(16).toString('hex');
  const uri = mongod.uri('bench');
  const db = mongod.db('bench');
  const groups = [
    { number: 0, devices: small_group },
    { number: 1, devices: options.devices - small_group },
  ];
  const preparing = await startService({ folder, uri, key });
  const preparer = createClient(preparing.url, key);
  await createGroups(preparer, groups);
  const startedAt = performance.now();
  await loadDevices({ client: preparer, db, groups, fieldsOf });
  const devices_s = (performance.now() - startedAt) / 1000;
  await preparer.send('POST', `/devices/${deviceId(0, 0)}/streams/`, { data: {} });
  const sample = await db.collection('streams').findOne({});
  if (sample === null) throw new Error('the stream is not in the database');
  // the service would read every change
  await preparing.stop();
  const streams = await loadStreams(db, sample);
  await db.admin().command({ fsync: 1 });

  printProgress('measuring');
  const started_ms = performance.now();
  const service = await startService({ folder, uri, key });
  const ready_s = (performance.now() - started_ms) / 1000;
  closers.push(service.stop);
  const client = createClient(service.url, key);
  const span = `at_from=${streams.first_at}&at_to=${streams.last_at}`;
  const last = deviceId(1, options.devices - small_group - 1);
  const requests: [string, string, string, object?][] = [
    ['first 20 devices and total', 'GET', '/devices/?max=20'],
    ['one device', 'GET', `/devices/${last}/`],
    ['20 devices in time, and total', 'GET', '/devices/?status=ok&max=20'],
    ['20 devices in a circle, and total', 'GET', '/devices/?geo_lon=0&geo_lat=0&geo_distance=30000&max=20'],
    ['part of a name, first 20', 'GET', '/devices/?q=1-123456&max=20'],
    ['first 20 streams of a device, and total', 'GET', `/devices/${last}/streams/?max=20`],
    ['series of a device, all its streams', 'GET', `/devices/${last}/series/?fields=temperature&${span}`],
    ['series of 100 devices', 'GET', `/groups/${groupId(0)}/series/?fields=temperature&${span}`],
    ['one stream sent', 'POST', `/devices/${last}/streams/`, { data: { temperature: 21.5 } }],
  ];
  const table = [['request', 'first', 'median']];
  for (const [name, ...request] of requests) table.push([name, ...(await measureRequests(client, ...request))]);
  console.log(`${options.devices} devices loaded in ${devices_s.toFixed(0)} s, with their indexes`);
  console.log(`${options.streams} streams loaded in ${streams.seconds.toFixed(0)} s`);
  console.log(`start of the service to ready: ${ready_s.toFixed(1)} s`);
  const [ofService, ofMongod] = [service.pid, mongod.pid].map(readResident_mib);
  console.log(`memory at the end: service ${ofService} MiB, mongod ${ofMongod} MiB`);
  console.log(
    formatTable([
      ['collection', 'data', 'indexes'],
      ...(await Promise.all(['devices', 'streams'].map((one) => measureDisk(db, one)))),
    ]),
  );
  console.log(formatTable(table));
}

await withEnvironment(main);
