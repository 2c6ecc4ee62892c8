import { once } from 'node:events';
import { chmod, chown, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { StartError } from '../../../src/errors.js';
import { startEmbedded } from '../../../src/mongod/embedded.js';
import { loadSecretKey } from '../../../src/mongod/secret-key.js';
import { findFreePort, sendRequest, type TrackedProcess, useSandbox, waitUntil } from '../../support/process.js';

const sandbox = useSandbox('each test');

/** Asserts that a start fails with one clear line and no stack trace. */
async function expectRefused(started: TrackedProcess, line: RegExp): Promise<void> {
  const code = await started.ended;
  expect([code, started.complaints()]).toEqual([1, [expect.stringMatching(line)]]);
}

/** Starts the embedded database and loads the secret key of a data directory, as the service does. */
async function startData(data_dir: string): Promise<void> {
  const log = { info() {}, warn() {}, error() {} };
  const embedded = await startEmbedded({ dataDir: data_dir, env: process.env, log, print: () => undefined });
  await loadSecretKey(data_dir).finally(embedded.stop);
}

const elsewhere = () => {
  const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
  uri.pathname = '/test-start';
  return { MONGODB_URI: uri.href, SECRET_KEY: 'only for this test' };
};

describe('a bad value stops the start with one line that names the variable', () => {
  it.each<[string, string, object]>([
    ['PORT', '65536', elsewhere()],
    ['HOST', '203.0.113.7', elsewhere()],
    ['DATA_DIR', '/dev/null/data', {}],
  ])('printed by the process: %s', async (variable, value, env) => {
    await expectRefused(await sandbox.start({ ...env, [variable]: value }), new RegExp(`\\b${variable}\\b`));
  });

  it('MONGODB_URI that only the driver finds wrong, without repeating its password', async () => {
    const MONGODB_URI = 'mongodb://me:hidden@127.0.0.1:99999/x';
    await expectRefused(await sandbox.start({ ...elsewhere(), MONGODB_URI }), /^MONGODB_URI must be an address[^:]*$/);
  });

  it('SECRET_KEY, missing beside MONGODB_URI', async () => {
    const { MONGODB_URI } = elsewhere();
    await expectRefused(await sandbox.start({ MONGODB_URI }), /^SECRET_KEY must be set where MONGODB_URI is/);
  });
});

it('is ready once all ports are open', async () => {
  const [PORT, MQTT_PORT] = [await findFreePort(), await findFreePort()];
  await sandbox.start({ ...elsewhere(), PORT: String(PORT), MQTT_PORT: String(MQTT_PORT) });
  const isReady = async () => (await sendRequest('GET', `http://127.0.0.1:${PORT}/readyz`)).status === 200;
  while (!(await isReady().catch(() => false))) await new Promise(setImmediate);
  const socket = connect(MQTT_PORT, '127.0.0.1');
  await once(socket, 'connect');
  socket.destroy();
});

describe('an unusable DATA_DIR ends the start with one line that names it', () => {
  const inData = (name: string) => () => join(sandbox.folder, 'data', name);

  interface Unusable {
    what: string;
    path?: () => string;
    prepare?: () => Promise<unknown>;
  }

  it.each<Unusable>([
    { what: 'a path that cannot exist', path: () => '/proc/nope' },
    { what: 'a path below one that cannot exist', path: () => '/proc/nope/deeper/data' },
    { what: 'a folder in a read-only file system', path: () => '/sys/nope' },
    { what: 'a folder that takes no files', path: () => '/proc/self' },
    { what: 'a device', path: () => '/dev/null' },
    { what: 'a file', path: inData('x'), prepare: () => writeFile(inData('x')(), '') },
    { what: 'a folder below a file', path: inData('x/data'), prepare: () => writeFile(inData('x')(), '') },
    { what: 'a link to nowhere', path: inData('x'), prepare: () => symlink('nowhere', inData('x')()) },
    { what: 'a link to itself', path: inData('x'), prepare: () => symlink('x', inData('x')()) },
    { what: 'a name that is too long', path: inData('n'.repeat(300)) },
    { what: 'a path that is too long', path: inData('n/'.repeat(3_000)) },
    { what: 'a lock that is a folder', prepare: () => mkdir(inData('service.lock')()) },
    { what: 'a lock that is a link to nowhere', prepare: () => symlink('nowhere', inData('service.lock')()) },
    { what: 'a key file that is a folder', prepare: () => mkdir(inData('mongod.key')()) },
    { what: 'a database that is a file', prepare: () => writeFile(inData('db')(), '') },
    { what: 'a log that is a folder', prepare: () => mkdir(inData('mongod.log')()) },
    { what: 'an address that is a folder', prepare: () => mkdir(inData('mongodb.uri')()) },
    { what: 'a secret key that is a folder', prepare: () => mkdir(inData('secret.key')()) },
    { what: 'a secret key that is empty', prepare: () => writeFile(inData('secret.key')(), '') },
  ])('$what', async ({ path = inData(''), prepare }) => {
    await prepare?.();
    const reason = await startData(path()).catch((error) => error);
    expect(reason).toBeInstanceOf(StartError);
    expect(reason.message).toMatch(/^[^\n]*(DATA_DIR|mongod [\d.]+ does not start on) \S+[^\n]*$/);
  });

  it('a folder of another user', async () => {
    const folder = inData('')();
    await chmod(sandbox.folder, 0o755);
    const isRoot = process.getuid?.() === 0;
    await chmod(folder, isRoot ? 0o755 : 0o555);
    if (isRoot) await chown(folder, 1, 1);
    // this process and not another one, which may not be allowed to read the program
    if (isRoot) process.seteuid?.(65_534);
    const reason = await startData(folder)
      .catch((error) => error)
      .finally(() => isRoot && process.seteuid?.(0));
    expect(reason).toBeInstanceOf(StartError);
    expect(reason.message).toMatch(/^DATA_DIR \S+ cannot be used: EACCES: [^\n]+$/);
  });
});

describe('a taken port stops the start with one line', () => {
  it.each([
    ['on a database elsewhere', elsewhere],
    ['with several workers', () => ({ ...elsewhere(), WORKERS: '2' })],
    ['on the embedded database, which it ends', () => ({})],
  ])('%s', async (_where, env) => {
    const other = createServer().listen(0, '127.0.0.1').unref();
    await once(other, 'listening');
    const PORT = String((other.address() as AddressInfo).port);
    await expectRefused(
      await sandbox.start({ ...env(), PORT }),
      new RegExp(`^PORT ${PORT} of HOST 127.0.0.1 is taken$`),
    );
    await expect(sandbox.embeddedUri()).rejects.toThrow('ENOENT');
    other.close();
  });
});

it('generates a key on the first start only, prints it once, and keeps its data', async () => {
  const first = await sandbox.service();
  expect(
    first
      .out()
      .split('\n')
      .filter((line) => line.includes(first.key)),
  ).toHaveLength(1);
  expect(first.err()).not.toContain(first.key);
  const { key } = first;
  const body = { name: 'kept', id_customer: 'c' };
  expect((await first.send('POST', '/projects/', body)).body.code).toBe(2001);
  const keys = (await first.send('GET', '/apikeys/')).body.result;
  expect(keys).toMatchObject([{ username: 'admin', scope: 'admin' }]);
  const secret = join(sandbox.folder, 'data', 'secret.key');
  expect((await stat(secret)).mode & 0o777).toBe(0o600);
  const made = await readFile(secret, 'utf8');

  // a second instance leaves the first and its data alone
  await expectRefused(await sandbox.start(), /^DATA_DIR .*data is in use by process \d+/);
  expect((await first.send('GET', '/projects/kept@demo/')).status).toBe(200);

  first.kill('SIGKILL');
  await first.ended;
  const second = await sandbox.service({ BOOTSTRAP_API_KEY: 'not-needed-any-more' });
  expect(second.out()).not.toMatch(/API key/);
  const shown = await sendRequest('GET', `${second.url}/projects/kept@demo/`, undefined, { 'service.apikey': key });
  expect([shown.status, shown.body.name]).toEqual([200, 'kept']);
  const refused = { 'service.apikey': 'not-needed-any-more' };
  expect((await sendRequest('GET', `${second.url}/projects/`, undefined, refused)).status).toBe(401);
  expect(await readFile(secret, 'utf8')).toBe(made);
});

it('writes warnings of Node.js, and of what is too old, as lines of the log', async () => {
  const warn =
    'process.on("newListener", (name) => name === "warning" && setImmediate(() => process.emitWarning("odd")))';
  const NODE_OPTIONS = `--import="data:text/javascript,${encodeURIComponent(warn)}"`;
  const service = await sandbox.service({ ...elsewhere(), NODE_OPTIONS });
  await waitUntil(() => service.err().includes('odd'));
  expect(service.complaints()).toEqual([]);
  const lines = service
    .err()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  expect(lines).toContainEqual(
    expect.objectContaining({ level: 40, msg: 'warning of Node.js', err: expect.objectContaining({ message: 'odd' }) }),
  );
  const [major] = process.versions.node.split('.');
  expect(lines.filter(({ release }) => release !== undefined)).toEqual(
    major === '20' ? [expect.objectContaining({ level: 40, release: 'Node.js 20', since: '2026-04-30' })] : [],
  );
});

it('takes BOOTSTRAP_API_KEY as the first key of an empty database, and never shows it', async () => {
  const service = await sandbox.service({ BOOTSTRAP_API_KEY: 'chosen-by-the-operator' });
  expect(service.out() + service.err()).not.toContain('chosen-by-the-operator');
  const inherited = await readFile(`/proc/${await sandbox.embeddedPid()}/environ`, 'utf8');
  expect(inherited.split('\0').map((variable) => variable.split('=')[0])).toEqual(['PATH', 'HOME', '']);
  const keys = (await service.send('GET', '/apikeys/')).body.result;
  expect(keys).toMatchObject([{ username: 'admin', scope: 'admin' }]);
  const created = await service.send('POST', '/projects/', { name: 'p', id_customer: 'c' });
  expect(created.headers.location).toBe('/projects/p%40demo/');
});
