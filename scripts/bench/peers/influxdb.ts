import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findFreePort, startProcess, waitUntil } from '../../support/service-process.js';
import {
  activity_s,
  low_fuel,
  measureFolder,
  type Peer,
  type QueryName,
  readTreeCpu,
  type Subject,
  sendAtOnce,
  timed,
  waitForSize,
} from './peer.js';
import { diagnosticNames, type Entry, readingNames } from './trucks.js';

const senders = 4;

/** Starts InfluxDB 1.6 in a folder; its settings are the defaults, but it compacts soon. */
export async function startInfluxdb(folder: string, subject: Subject): Promise<Peer> {
  const root = join(folder, 'influxdb');
  await mkdir(root);
  const [port, rpc] = [await findFreePort(), await findFreePort()];
  const config = join(root, 'influxdb.conf');
  await writeFile(
    config,
    `reporting-disabled = true
bind-address = "127.0.0.1:${rpc}"
[meta]
dir = "${join(root, 'meta')}"
[data]
dir = "${join(root, 'data')}"
wal-dir = "${join(root, 'wal')}"
query-log-enabled = false
cache-snapshot-write-cold-duration = "5s"
compact-full-write-cold-duration = "10s"
[http]
bind-address = "127.0.0.1:${port}"
log-enabled = false
[monitor]
store-enabled = false
`,
  );
  const server = startProcess('influxd', ['-config', config], { env: process.env, logFile: join(root, 'log') });
  const url = `http://127.0.0.1:${port}`;
  await waitUntil(
    () =>
      fetch(`${url}/ping`).then(
        ({ ok }) => ok,
        () => false,
      ),
    30_000,
  );

  async function ask(q: string, db = 'trucks'): Promise<Series[]> {
    const body = new URLSearchParams({ q, db, epoch: 's' });
    const response = await fetch(`${url}/query`, { method: 'POST', body });
    const text = await response.text();
    const { results: [result] = [] } = JSON.parse(text) as { results?: { series?: Series[]; error?: string }[] };
    if (result === undefined || result.error !== undefined) throw new Error(`InfluxDB: ${text}`);
    return result.series ?? [];
  }
  await ask('CREATE DATABASE trucks', '');

  const span = `time >= ${subject.from}s AND time <= ${subject.to}s`;
  const count = (series: readonly Series[]) => series.reduce((sum, { values }) => sum + values.length, 0);
  const queries: Record<QueryName, () => Promise<number>> = {
    'last locations': async () =>
      count(await ask('SELECT latitude, longitude FROM readings GROUP BY "name" ORDER BY time DESC LIMIT 1')),
    'low fuel': async () => {
      const last = await ask('SELECT last(fuel_state) FROM "diagnostics" GROUP BY "name"');
      return last.filter(({ values }) => Number(values[0]?.[1]) < low_fuel).length;
    },
    'load of a fleet by hours': async () =>
      count(
        await ask(
          `SELECT mean(current_load) FROM "diagnostics" WHERE fleet = '${subject.fleet}' AND ${span} GROUP BY time(1h) fill(none)`,
        ),
      ),
    'activity of a truck': async () =>
      count(
        await ask(
          `SELECT mean(velocity) FROM readings WHERE "name" = '${subject.truck.name}' AND ${span} GROUP BY time(${activity_s}s) fill(none)`,
        ),
      ),
  };
  return {
    name: 'InfluxDB 1.6',
    load: (batches) =>
      sendAtOnce(batches, senders, async (batch) => {
        const body = batch.flatMap(toLines).join('\n');
        const response = await fetch(`${url}/write?db=trucks&precision=s`, { method: 'POST', body });
        if (!response.ok) throw new Error(`InfluxDB: ${response.status} ${await response.text()}`);
        await response.arrayBuffer();
      }),
    readCpu: () => readTreeCpu(server.pid),
    // it compacts what has not changed for a while
    measureSize: () =>
      waitForSize(async () => (await measureFolder(join(root, 'data'))) + (await measureFolder(join(root, 'wal')))),
    ask: (query) => timed(queries[query]),
    stop: () => server.stop(),
  };
}

interface Series {
  values: readonly (readonly unknown[])[];
}

function toLines({ truck: { name, fleet, model, driver }, at, readings, diagnostics }: Entry): string[] {
  const tags = `name=${name},fleet=${fleet},model=${model},driver=${driver}`;
  const fieldsOf = <Name extends string>(names: readonly Name[], values: Record<Name, number>) =>
    names.map((field) => `${field}=${values[field]}`).join(',');
  return [
    `readings,${tags} ${fieldsOf(readingNames, readings)} ${at}`,
    `diagnostics,${tags} ${fieldsOf(diagnosticNames, diagnostics)} ${at}`,
  ];
}
