import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { realpathSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import mongoose from 'mongoose';
import { startEmbedded } from '../../src/mongod/embedded.js';

export type Victim = 'service' | 'mongod' | 'both';

/** What became of the writes that were acknowledged. */
export interface Outcome {
  acknowledged: number;
  lost: number;
}

interface Rounds {
  rounds: number;
  say: (line: string) => void;
}

const writers = 12;
const batch = 20;
const devices = 4;
const start_limit_ms = 60_000;

/**
 * Streams are posted by several clients at once, singly and in arrays, while the victim is killed with SIGKILL, round
 * after round on the same data. @returns how many of the streams that were answered 200 are gone, counted after every
 * round and once more over all rounds at the end @throws Error if the service does not come back
 */
export async function killDuringIngest(victim: Victim, { rounds, say }: Rounds): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'durability-'));
  const key = randomBytes(16).toString('hex');
  let service = await startService(folder, key);
  try {
    const ids = await layOut(service);
    const acknowledged = new Map<string, number[]>();
    let lost = 0;
    let next = 0;
    for (let round = 1; round <= rounds; round++) {
      const protocol = `round ${round}`;
      const written: number[] = [];
      acknowledged.set(protocol, written);
      const until = new AbortController();
      const current = service;
      const writing = Array.from({ length: writers }, async (_, writer) => {
        while (!until.signal.aborted) {
          const first = next;
          const numbers = Array.from({ length: writer % 2 ? batch : 1 }, (_, index) => first + index);
          next += numbers.length;
          const stored = await post(current, ids, protocol, numbers).catch(() => false);
          if (stored) written.push(...numbers);
          else await sleep(10);
        }
      });
      await sleep(300 + Math.random() * 700);
      const killed = performance.now();
      if (victim !== 'service') process.kill(await pidOfMongod(folder), 'SIGKILL');
      if (victim !== 'mongod') {
        service.child.kill('SIGKILL');
        await service.ended;
        until.abort();
        service = await startService(folder, key);
      } else {
        // until what is posted counts again
        const before = written.length;
        await soon(() => written.length > before + writers * batch);
        until.abort();
      }
      const up_ms = Math.round(performance.now() - killed);
      await Promise.all(writing);
      const missing = await missingOf(service, protocol, written);
      lost += missing;
      say(`${victim} ${round}/${rounds}: ${written.length} acknowledged, ${missing} lost, up again after ${up_ms} ms`);
    }
    let finally_lost = 0;
    for (const [protocol, written] of acknowledged) finally_lost += await missingOf(service, protocol, written);
    const total = [...acknowledged.values()].reduce((sum, written) => sum + written.length, 0);
    return { acknowledged: total, lost: Math.max(lost, finally_lost) };
  } finally {
    service.child.kill('SIGTERM');
    await service.ended;
    await endLeftOver(folder);
    await rm(folder, { recursive: true, force: true });
  }
}

/** The control: the same mongod, killed the same way, but writes acknowledged by `w: 1` without the journal. */
export async function killDuringUnsafeWrites({ rounds, say }: Rounds): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'durability-'));
  const quiet = { info() {}, warn() {}, error() {} };
  const { uri, stop } = await startEmbedded({ dataDir: folder, env: process.env, log: quiet, print: say });
  const client = new mongoose.mongo.MongoClient(uri, {
    writeConcern: { w: 1, journal: false },
    serverSelectionTimeoutMS: 1000,
    socketTimeoutMS: 2000,
  });
  const outcome: Outcome = { acknowledged: 0, lost: 0 };
  try {
    for (let round = 1; round <= rounds; round++) {
      const things = client.db().collection<{ _id: number }>(`round ${round}`);
      const written: number[] = [];
      const until = new AbortController();
      let next = 0;
      const writing = Array.from({ length: writers }, async () => {
        while (!until.signal.aborted) {
          const _id = next++;
          const stored = await things.insertOne({ _id }).then(
            () => true,
            () => false,
          );
          if (stored) written.push(_id);
        }
      });
      await sleep(300 + Math.random() * 700);
      process.kill(await pidOfMongod(folder), 'SIGKILL');
      until.abort();
      await Promise.all(writing);
      let present: Set<number> | undefined;
      await soon(async () => {
        present = new Set((await things.find().toArray()).map(({ _id }) => _id));
        return true;
      });
      const missing = written.filter((_id) => present?.has(_id) !== true).length;
      outcome.acknowledged += written.length;
      outcome.lost += missing;
      say(`control ${round}/${rounds}: ${written.length} acknowledged, ${missing} lost`);
    }
    return outcome;
  } finally {
    await client.close();
    await stop();
    await rm(folder, { recursive: true, force: true });
  }
}

interface Service {
  url: string;
  key: string;
  child: ChildProcess;
  ended: Promise<unknown>;
}

/** The built service on its embedded database in `folder`, ready. */
async function startService(folder: string, key: string): Promise<Service> {
  const settings = {
    PORT: '0',
    MQTT_PORT: 'off',
    LOG_FORMAT: 'off',
    LOG_LEVEL: 'fatal',
    MONGODB_URI: '',
    BASE_PATH: '',
  };
  const child = spawn(process.execPath, ['dist/src/main.js'], {
    env: { ...process.env, ...settings, WORKERS: '1', DATA_DIR: folder, BOOTSTRAP_API_KEY: key },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  const url = () => /listening on (\S+)/.exec(out)?.[1] ?? '';
  try {
    await soon(async () => {
      if (child.exitCode !== null) throw new Ended(`the service ended with exit code ${child.exitCode}`);
      return (await fetch(`${url()}/readyz`)).status === 200;
    });
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  }
  return { url: url(), key, child, ended };
}

class Ended extends Error {}

/** Waits until `holds` is true; what it throws counts as not yet. @throws Error after a minute, Ended at once */
async function soon(holds: () => boolean | Promise<boolean>): Promise<void> {
  const end = performance.now() + start_limit_ms;
  for (;;) {
    const held = await Promise.resolve()
      .then(holds)
      .catch((error: unknown) => {
        if (error instanceof Ended) throw error;
        return false;
      });
    if (held) return;
    if (performance.now() > end) throw new Error(`not within ${start_limit_ms} ms`);
    await sleep(20);
  }
}

/** A mongod outlives a service that was killed and did not come back. */
async function endLeftOver(folder: string): Promise<void> {
  const pid = await pidOfMongod(folder).catch(() => 0);
  const command = pid > 0 ? await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') : '';
  if (command.includes(join(folder, 'db'))) process.kill(pid, 'SIGKILL');
}

async function pidOfMongod(folder: string): Promise<number> {
  return Number(await readFile(join(folder, 'db', 'mongod.lock'), 'utf8'));
}

async function send({ url, key }: Service, method: string, path: string, body?: object): Promise<Response> {
  return fetch(url + path, {
    method,
    headers: { 'service.apikey': key, 'content-type': 'application/json' },
    signal: AbortSignal.timeout(10_000),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

/** @returns the identifiers of a few devices */
async function layOut(service: Service): Promise<string[]> {
  const create = async (plural: string, body: object) => {
    const reply = await send(service, 'POST', `/${plural}/`, body);
    if (reply.status !== 200) throw new Error(`cannot create ${plural}: ${await reply.text()}`);
    return decodeURIComponent(reply.headers.get('location')?.split('/').at(-2) ?? '');
  };
  const id_project = await create('projects', { name: 'durability', id_customer: 'test' });
  const id_service = await create('services', { name: 'durability', id_project });
  const id_group = await create('groups', { name: 'durability', id_service });
  const ids: string[] = [];
  for (let count = 0; count < devices; count++)
    ids.push(await create('devices', { name: 'writer', type: 'test', id_group }));
  return ids;
}

/** @returns whether the service has acknowledged all of `numbers` */
async function post(service: Service, ids: readonly string[], protocol: string, numbers: readonly number[]) {
  const entries = numbers.map((n) => ({ device: ids[n % ids.length], protocol, data: { n } }));
  const reply = await send(service, 'POST', '/streams/', entries);
  await reply.arrayBuffer();
  return reply.status === 200;
}

/** How many of `written` the service does not show, or shows more than once. */
async function missingOf(service: Service, protocol: string, written: readonly number[]): Promise<number> {
  const shown = new Map<number, number>();
  for (let offset = 0; ; offset += 1000) {
    const query = `protocol=${encodeURIComponent(protocol)}&max=1000&offset=${offset}&sort=created_at`;
    const reply = await send(service, 'GET', `/streams/?${query}`);
    if (reply.status !== 200) throw new Error(`cannot list streams: ${await reply.text()}`);
    const { result } = (await reply.json()) as { result: { data: { n: number } }[] };
    for (const { data } of result) shown.set(data.n, (shown.get(data.n) ?? 0) + 1);
    if (result.length < 1000) break;
  }
  return written.filter((n) => shown.get(n) !== 1).length;
}

function wholeNumber(text: string): number {
  if (!/^[1-9][0-9]{0,3}$/.test(text)) throw new InvalidArgumentError('must be a whole number from 1 to 9999.');
  return Number(text);
}

async function main(): Promise<void> {
  const program = new Command('durability')
    .description('Kills the service and its database during ingest and looks for what was acknowledged.')
    .option('--rounds <n>', 'kills of each kind', wholeNumber, 10)
    .parse();
  const options = { rounds: program.opts<{ rounds: number }>().rounds, say: console.log };
  let failed = false;
  for (const victim of ['service', 'mongod', 'both'] as const) {
    const { acknowledged, lost } = await killDuringIngest(victim, options);
    console.log(`${victim}: ${lost} of ${acknowledged} acknowledged streams lost`);
    failed ||= lost > 0;
  }
  const control = await killDuringUnsafeWrites(options);
  console.log(`control, w:1 without journal: ${control.lost} of ${control.acknowledged} acknowledged writes lost`);
  if (control.lost === 0) {
    console.log(`the control lost nothing in ${options.rounds} rounds, so the rest proves nothing: try more rounds`);
    failed = true;
  }
  process.exitCode = failed ? 1 : 0;
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
