import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { awaitWithin, sendRequest } from '../support/instance.js';
import { startProcess, waitUntil } from '../support/service-process.js';
import { insertCopies, insertStreamCopies } from './copies.js';
import { type Attack, assert, create, group, type Target } from './target.js';

/** Attacks by the amount of data (reference/resources.md#delete, reference/identifiers.md#names). */
export const dataAttacks: readonly Attack[] = [
  { name: 'data: deleting a device with 50,000 streams (--large: 500,000)', run: deleteManyStreams },
  { name: 'data: deleting a project with 200,000 streams (--large: 10 million)', run: deleteProject },
  { name: 'data: 20 concurrent creates beside 2,000 devices of one name (--large: 40,000)', run: shareName },
  { name: 'data: a data folder that cannot be created', run: startWithoutFolder },
];

async function deleteManyStreams(target: Target): Promise<void> {
  const count = target.isLarge ? 500_000 : 50_000;
  await create(target, 'devices', { name: 'flooded', type: 'pump', id_group: group });
  await create(target, 'devices/flooded@demo/streams', { data: { n: 1 } });
  const filter = { '_id.device': 'flooded@demo' };
  await insertStreamCopies(target, filter, { count });
  const limit_ms = target.isLarge ? 300_000 : 60_000;
  await deleteWhileReady(target, { path: '/devices/flooded@demo/', filter, limit_ms });
}

async function deleteProject(target: Target): Promise<void> {
  const [count, device_count] = target.isLarge ? [10_000_000, 100] : [200_000, 10];
  await create(target, 'projects', { name: 'campus', id_customer: 'c' });
  await create(target, 'services', { name: 'heating', id_project: 'campus@demo' });
  await create(target, 'groups', { name: 'attic', id_service: 'heating@demo' });
  for (let n = 0; n < device_count; n++)
    await create(target, 'devices', { name: `boiler-${n}`, type: 'boiler', id_group: 'attic@demo' });
  await create(target, 'devices/boiler-0@demo/streams', { data: { n: 1 } });
  const devices = await (await target.database()).collection('devices').find({ type: 'boiler' }).toArray();
  const place = (n: number) => {
    const { id_developer: device, _id: parent } = devices[n % devices.length] as mongo.Document;
    return { device, parent };
  };
  await insertStreamCopies(target, { '_id.device': 'boiler-0@demo' }, { count, place });
  const filter = { '_id.device': /^boiler-/ };
  const limit_ms = target.isLarge ? 1_800_000 : 60_000;
  await deleteWhileReady(target, { path: '/projects/campus@demo/', filter, limit_ms });
  const { text } = await target.send('GET', '/devices/?name=boiler-0');
  assert(text.includes('"total_documents":0'), `devices are left: ${text}`);
}

interface LargeDelete {
  path: string;
  /** Streams that the DELETE removes. */
  filter: object;
  limit_ms: number;
}

/** Deletes an object while `/readyz` is polled, and waits until its streams are gone. */
async function deleteWhileReady(target: Target, { path, filter, limit_ms }: LargeDelete): Promise<void> {
  const streams = (await target.database()).collection('streams');
  const polling = new AbortController();
  const failures: string[] = [];
  const readiness = (async () => {
    while (!polling.signal.aborted) {
      const { status, took_ms } = await sendRequest({ url: target.url, path: '/readyz' });
      if (status !== 200) failures.push(`/readyz answers ${status} meanwhile`);
      if (took_ms > target.calm_limit_ms) failures.push(`/readyz takes ${Math.round(took_ms)} ms meanwhile`);
      await sleep(50);
    }
  })();
  try {
    const { code, text } = await target.send('DELETE', path);
    assert(code === 2004 || code === 5031, `the DELETE answers ${text}`);
    const { status } = await target.send('GET', path);
    assert(status === 404, `the deleted object answers ${status}`);
    const isEmpty = async () => (await streams.countDocuments(filter, { limit: 1 })) === 0;
    await waitUntil(isEmpty, limit_ms).catch(() => {
      throw new Error(`streams are left after ${limit_ms / 1000} s`);
    });
    await sleep(1000);
  } finally {
    polling.abort();
    await readiness;
  }
  assert(failures.length === 0, `${failures[0]} (${failures.length} times)`);
}

async function shareName(target: Target): Promise<void> {
  const count = target.isLarge ? 40_000 : 2000;
  const body = { name: 'twin', type: 'pump', id_group: group };
  await create(target, 'devices', body);
  const change = (number: number) => ({ id_developer: `twin-${number + 2}@demo` });
  await insertCopies(target, 'devices', { account: 'demo', id_developer: 'twin@demo' }, { count, change });
  for (let round = 0; round < 3; round++) {
    const replies = await Promise.all(Array.from({ length: 20 }, () => target.send('POST', '/devices/', body)));
    const refused = replies.filter(({ code }) => code !== 2001);
    assert(refused.length === 0, `${refused.length} of 20 creates fail, the first with ${refused[0]?.code}`);
    const locations = new Set(replies.map(({ headers }) => headers.location));
    assert(locations.size === 20, `20 creates have ${locations.size} different identifiers`);
    const slowest_ms = Math.max(...replies.map(({ took_ms }) => took_ms));
    assert(slowest_ms < 3 * target.calm_limit_ms, `a create takes ${Math.round(slowest_ms)} ms`);
  }
}

/** Starts a process that must give up with one line. */
async function startWithoutFolder(): Promise<void> {
  for (const folder of ['/proc/nope', '/dev/null/data', '/proc/self/fd']) {
    const { PATH, HOME, MONGOMS_SYSTEM_BINARY } = process.env;
    const settings = { HOST: '127.0.0.1', PORT: '0', MQTT_PORT: 'off', LOG_LEVEL: 'fatal', DATA_DIR: folder };
    const env = { PATH, HOME, ...(MONGOMS_SYSTEM_BINARY !== undefined && { MONGOMS_SYSTEM_BINARY }), ...settings };
    const started = startProcess(process.execPath, ['dist/src/main.js'], { env });
    const code = await awaitWithin(started.ended, 15_000, `DATA_DIR=${folder}: giving up`).catch(async (error) => {
      await started.stop('SIGKILL');
      throw error;
    });
    const lines = started.err().trim().split('\n');
    assert(code === 1, `DATA_DIR=${folder}: the start ends with ${code} instead of 1`);
    assert(lines.length === 1 && lines[0] !== '', `DATA_DIR=${folder}: the start ends with ${lines.length} lines`);
  }
}
