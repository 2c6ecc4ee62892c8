import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { waitUntil } from '../support/service-process.js';
import { createGroup, send, sendOk } from './instance.js';
import { type RaceOptions, type Races, withRaces } from './races.js';
import {
  computeSeries,
  createRandomData,
  formatEntries,
  modelAggregates,
  readEntries,
  type SummaryModelStream,
  summaryPaths,
} from './summary-model.js';

/** Groups between which devices move. */
const groups = ['g@demo', 'other@demo'];
/** Hours in which streams are sent, until now. */
const hours = 100;
/** Marks that crashes leave behind are due by then. */
const settle_limit_ms = 180_000;
const spans_s = [3600, 7200, 86_400];

/**
 * Sends random streams of the last days to two instances, deletes some and whole devices, which come again under their
 * name, and moves devices to another group. Kills instances and database at random moments, and compares series with the
 * streams that are stored then, once while hours are marked and once when they are summarised again.
 */
export function runSummaryRaces({ devices, print, ...setup }: RaceOptions & { devices: number }) {
  return withRaces(setup, async (races) => {
    const { instances, key, kill, recover, db } = races;
    const load = new AbortController();
    const names = Array.from({ length: devices }, (_, number) => `meter ${number}`);
    const { url = '' } = instances[0] ?? {};
    const id_group = await createGroup(url, key);
    await sendOk(url, key, 'POST', '/groups/', { name: 'other', id_service: 's@demo' });
    for (const name of names) await sendOk(url, key, 'POST', '/devices/', { name, type: 'meter', id_group });
    const workers = names.map((name) => change(races, { name, id_group }, load.signal));
    const kills = await kill();
    load.abort();
    const requests = (await Promise.all(workers)).reduce((sum, count) => sum + count, 0);
    await recover();
    const faults = await compare(races);
    const marked = { due_at: { $lte: Date.now() / 1000 + 120 } };
    await waitUntil(
      async () => (await db.collection('stream_summaries').countDocuments(marked)) === 0,
      settle_limit_ms,
    );
    const later = await compare(races);
    print(`seed ${setup.seed}: ${requests} requests, ${kills} kills, ${faults.length} and ${later.length} faults`);
    return { requests, kills, faults: [...faults, ...later] };
  });
}

/** Changes the streams of one device, one request after the other. @returns their number */
async function change(
  { instances, key, random }: Races,
  device: { name: string; id_group: string },
  signal: AbortSignal,
): Promise<number> {
  const path = `/devices/${encodeURIComponent(`${device.name}@demo`)}/`;
  const start = Math.floor(Date.now() / 1000) - hours * 3600;
  let count = 0;
  for (; !signal.aborted; count++) {
    const { url = '' } = instances[Math.floor(random() * instances.length)] ?? {};
    const times = Array.from({ length: 1 + Math.floor(random() * 20) }, () => start + random() * hours * 3600);
    const from = start + random() * hours * 3600;
    const roll = random();
    const send = () => {
      const streams = times.map((at) => ({ at, data: createRandomData(random) }));
      if (roll < 0.9) return sendOk(url, key, 'POST', `${path}streams/`, streams);
      if (roll < 0.98) return sendOk(url, key, 'DELETE', `${path}streams/?at_from=${from}&at_to=${from + 8000}`);
      if (roll < 0.995) return sendOk(url, key, 'PUT', path, { id_group: groups[count % 2] });
      return sendOk(url, key, 'DELETE', path);
    };
    // it may have been deleted
    await send().catch(() => createAgain({ url, key }, device, path));
  }
  return count;
}

/** Creates a device unless it is there, after a pause; the next requests fail until it is. */
async function createAgain({ url, key }: { url: string; key: string }, device: object, path: string): Promise<void> {
  await sleep(50);
  const { status } = await send(url, key, 'GET', path).catch(() => ({ status: 0 }));
  if (status === 404) await sendOk(url, key, 'POST', '/devices/', { ...device, type: 'meter' }).catch(() => undefined);
}

/** Compares the series of devices and groups with the stored streams. @returns those that differ */
async function compare({ instances, key, db }: Races): Promise<string[]> {
  const devices = await db.collection('devices').find().toArray();
  const read = devices.map(async ({ id_developer, _id, id_group }) => {
    const streams = await readStreams(db, String(id_developer), _id);
    return { path: `/devices/${encodeURIComponent(String(id_developer))}`, id_group, streams };
  });
  const single = await Promise.all(read);
  const grouped = groups.map((group) => ({
    path: `/groups/${encodeURIComponent(group)}`,
    streams: single.flatMap(({ id_group, streams }) => (id_group === group ? streams : [])).toSorted(byReceipt),
  }));
  const faults: string[] = [];
  const now = Math.floor(Date.now() / 1000);
  const [from, to] = [now - (now % 86_400) - 6 * 86_400, now];
  for (const { path, streams } of [...single, ...grouped])
    for (const field of summaryPaths)
      for (const every of spans_s) {
        const query = `fields=${field}&aggregate=${modelAggregates}&every=${every}&at_from=${from}&at_to=${to}`;
        const answer = await sendOk(instances[0]?.url ?? '', key, 'GET', `${path}/series/?${query}`);
        const { result } = (await answer.json()) as { result: Record<string, unknown>[] };
        const expected = formatEntries(computeSeries(streams, field, (at) => at - (at % every)));
        const found = formatEntries(readEntries(result, field));
        if (found !== expected) faults.push(`${path}/series/?${query}\n${found}\ninstead of\n${expected}`);
      }
  return faults;
}

/** A stream with its number in the order of receipt. */
interface ReceivedStream extends SummaryModelStream {
  n: bigint;
}

const byReceipt = (one: ReceivedStream, other: ReceivedStream) => (one.n < other.n ? -1 : 1);

/** Reads the streams of a device in the order of their times, those of equal times in the order of receipt. */
async function readStreams(db: mongo.Db, device: string, parent: unknown): Promise<ReceivedStream[]> {
  const bounds = { $gte: { account: 'demo', device }, $lt: { account: 'demo', device: `${device}~` } };
  const stored = await db
    .collection('streams')
    .find({ _id: bounds, parent } as object, { sort: { _id: 1 } })
    .toArray();
  return stored.map(({ _id, data }) => {
    const { at, n } = _id as unknown as { at: number; n: unknown };
    return { at, n: BigInt(String(n)), data };
  });
}
