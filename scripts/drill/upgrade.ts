import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import { silentLog } from '../../src/lib/log.js';
import { startEmbedded } from '../../src/mongod/embedded.js';
import type { Backend } from '../../tests/support/balancer.js';
import { findBackend, sendOk } from '../checks/instance.js';
import {
  createStreamDevice,
  findStreamFaults,
  type StreamDevice,
  type StreamSender,
  startPosting,
  startPublishing,
} from '../checks/numbered-streams.js';
import { type RecordedProcess, startProcess, waitUntil } from '../support/service-process.js';
import { buildEarlierVersion, last_release } from './earlier-version.js';
import type { Outcome } from './outcome.js';

const recovery_timeout_ms = 300_000;
/** Streams that are stored before the upgrade, and of another device, whose streams are deleted. */
const stored_streams = 20_000;
const cleared_streams = 2000;
/** Time of the first of the streams that are stored before, in epoch seconds. */
const filled_from = 1_500_000_000;
/** Longer than an earlier version takes to see that it is locked out. */
const beside_ms = 8000;

/**
 * Upgrades a database under load while two instances of an earlier version go on beside the new one, which is killed twice; then
 * replaces them in turn. The database lets the service do no more than `readWrite`. Nothing that any instance has acknowledged may be lost.
 */
export async function drillUpgrade(): Promise<Outcome> {
  const checkout = await buildEarlierVersion(last_release);
  const folder = await mkdtemp(join(tmpdir(), 'upgrade-'));
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log: silentLog, print: () => undefined });
  const database = new mongoose.mongo.MongoClient(embedded.uri);
  const db = database.db();
  const key = randomBytes(16).toString('hex');
  const env = {
    ...process.env,
    MONGODB_URI: await createUser(embedded.uri, db),
    SECRET_KEY: key,
    BOOTSTRAP_API_KEY: key,
  };
  const processes: RecordedProcess[] = [];
  const start = (place: Backend, cwd = process.cwd()) => {
    const settings = {
      HOST: '127.0.0.1',
      PORT: new URL(place.url).port,
      MQTT_PORT: `${place.mqtt_port}`,
      LOG_FORMAT: 'off',
    };
    const started = startProcess(process.execPath, ['dist/src/main.js'], {
      cwd,
      env: { ...env, ...settings, BASE_PATH: '' },
    });
    processes.push(started);
    return started;
  };
  const senders = { posting: [] as StreamSender[], publishing: [] as StreamSender[] };
  try {
    const [first, second, added] = [await findBackend(), await findBackend(), await findBackend()];
    const places = [first, second, added];
    const earlier = [start(first, checkout), start(second, checkout)];
    await Promise.all([first, second].map(waitUntilReady));
    const device = await createStreamDevice(first.url, key, 'upgraded');
    const cleared = await createStreamDevice(first.url, key, 'cleared');
    await fillStreams(db, first.url, key, [device, stored_streams], [cleared, cleared_streams]);

    for (const place of places) senders.posting.push(startPosting(place.url, key, device));
    for (const place of places) senders.publishing.push(await startPublishing(mqttUrlOf(place), device));
    const all = () => [...senders.posting, ...senders.publishing];
    const acknowledgedOf = (list: readonly StreamSender[]) =>
      list.reduce((sum, one) => sum + one.acknowledged.length, 0);
    await waitUntil(() => [0, 1, 3, 4].every((index) => (all()[index]?.acknowledged.length ?? 0) > 10));
    const before = acknowledgedOf(all());

    await killWhen(start(added), 'can no longer use this database');
    const deleting = deleteStreams(second.url, key, cleared);
    await killWhen(start(added), 'streams are being upgraded');
    const upgraded = start(added);
    await waitUntil(() => upgraded.err().includes('database ready'), recovery_timeout_ms);
    // the earlier version could still write, if anything let it
    const beside = all().slice(0, 2);
    const besideBefore = acknowledgedOf(beside);
    await sleep(beside_ms);
    const faults: string[] = [];
    if (acknowledgedOf(beside) > besideBefore)
      faults.push('the earlier version acknowledged streams after the upgrade');
    for (const [index, place] of [first, second].entries()) {
      await earlier[index]?.stop('SIGTERM');
      start(place);
      await waitUntilReady(place);
    }
    const resumed = all().map(({ acknowledged }) => acknowledged.length);
    await waitUntil(
      () => all().every((one, index) => one.acknowledged.length > (resumed[index] ?? 0)),
      recovery_timeout_ms,
    );
    await Promise.all(all().map((sender) => sender.stop()));
    faults.push(...(await findStreamFaults(db, senders)));
    const count = (id: string, at: object) =>
      db.collection('streams').countDocuments({ '_id.device': id, '_id.at': at });
    const missing = stored_streams - (await count(device.id, { $lt: filled_from + stored_streams }));
    if (missing > 0) faults.push(`${missing} of ${stored_streams} earlier streams are missing`);
    const kept = (await deleting) ? await count(cleared.id, { $gt: 0 }) : 0;
    if (kept > 0) faults.push(`${kept} streams came back after their deletion`);
    return {
      counted: `${stored_streams} streams stored, ${before} acknowledged before, ${acknowledgedOf(all())} in all`,
      faults,
    };
  } catch (error) {
    const outputs = processes.map(({ out, err }) => out() + err().split('\n').filter(isTelling).slice(-5).join('\n'));
    throw new Error(`the upgrade was not completed:\n${outputs.join('\n')}`, { cause: error });
  } finally {
    await Promise.all(processes.map((one) => one.stop('SIGKILL')));
    await database.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

const mqttUrlOf = ({ mqtt_port }: Backend) => `mqtt://127.0.0.1:${mqtt_port}`;

function waitUntilReady({ url }: Backend): Promise<void> {
  return waitUntil(async () => (await fetch(`${url}/readyz`)).ok, recovery_timeout_ms);
}

/** Creates a user with the role that docs/operations.md asks for. @returns the address of the database for it */
async function createUser(uri: string, db: mongo.Db): Promise<string> {
  const name = 'service-only';
  const roles = [{ role: 'readWrite', db: db.databaseName }];
  await db.client.db('admin').command({ createUser: name, pwd: name, roles });
  const limited = new URL(uri);
  Object.assign(limited, { username: name, password: name });
  return limited.href;
}

/** Stores streams as the earlier version did, by copying one that it has stored. */
async function fillStreams(
  db: mongo.Db,
  url: string,
  key: string,
  ...amounts: readonly (readonly [StreamDevice, number])[]
): Promise<void> {
  const streams = db.collection<mongo.Document & { _id: mongo.UUID }>('streams');
  for (const [{ id }, count] of amounts) {
    await sendOk(url, key, 'POST', `/devices/${encodeURIComponent(id)}/streams/`, { at: filled_from, data: { n: -1 } });
    const stored = await streams.findOne({ device: id });
    for (let at = filled_from + 1; at < filled_from + count; at += fill_piece) {
      const length = Math.min(fill_piece, filled_from + count - at);
      const copies = Array.from({ length }, (_, index) => ({
        ...stored,
        _id: new mongoose.mongo.UUID(),
        at: at + index,
      }));
      await streams.insertMany(copies, { ordered: false });
    }
  }
}

const fill_piece = 5000;

/** Leaves out the lines about single MQTT clients and requests of the load. */
const isTelling = (line: string) => !/MQTT|BD error|is a view/.test(line);

/** Kills a process as soon as its log has a text, or the process killed before it was faster on a busy machine. */
async function killWhen(started: RecordedProcess, text: string): Promise<void> {
  const isReached = () => [text, 'database ready'].some((line) => started.err().includes(line));
  await waitUntil(isReached, recovery_timeout_ms);
  await started.stop('SIGKILL');
}

/** Deletes the streams of a device through an earlier version. @returns whether it has acknowledged that */
async function deleteStreams(url: string, key: string, { id }: StreamDevice): Promise<boolean> {
  const address = `${url}/devices/${encodeURIComponent(id)}/streams/`;
  const answer = await fetch(address, { method: 'DELETE', headers: { 'service.apikey': key } });
  return answer.ok;
}
