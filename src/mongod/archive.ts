import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { access, mkdir, mkdtemp, open, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createGunzip } from 'node:zlib';
import { createProgressBar } from './child-output.js';
import { openDownload } from './download.js';

type Environment = Readonly<Record<string, string | undefined>>;

/** An archive of MongoDB's download server, pinned by its SHA-256. */
export interface Archive {
  /** Path below the server's root. */
  path: string;
  sha256: string;
}

interface Platform {
  platform: string;
  arch: string;
  /** Version of the C library; undefined where it is not glibc. */
  glibc: string | undefined;
}

const mongod_version = '8.2.6';
const download_origin = 'https://fastdl.mongodb.org';
const download_timeout_ms = 600_000;

/** The known archives, each with the oldest glibc it runs on; of several, the first counts. */
const archives: (Pick<Platform, 'platform' | 'arch'> & Archive & { min_glibc?: number })[] = [
  {
    platform: 'linux',
    arch: 'x64',
    min_glibc: 2.39,
    path: `linux/mongodb-linux-x86_64-ubuntu2404-${mongod_version}.tgz`,
    sha256: '56314a0f0a81238d974302fbffe7862efe9694c498ead62a0bca92cb595a0df0',
  },
  {
    platform: 'linux',
    arch: 'x64',
    min_glibc: 2.36,
    path: `linux/mongodb-linux-x86_64-debian12-${mongod_version}.tgz`,
    sha256: 'ebf8bd8eb59c746a1ec834db4fe84d853453ed67ae3c39aea379dd0bbd16a2e6',
  },
  {
    platform: 'linux',
    arch: 'arm64',
    min_glibc: 2.39,
    path: `linux/mongodb-linux-aarch64-ubuntu2404-${mongod_version}.tgz`,
    sha256: '8eaa50d208e82df9effa462a6c5cb200a65b037fa118af0153f701ce1ceab422',
  },
  {
    platform: 'darwin',
    arch: 'x64',
    path: `osx/mongodb-macos-x86_64-${mongod_version}.tgz`,
    sha256: '39b6ba80ad21ad1ca8dbd989d7fe81a60aa5f41475eb42d4247fe40740062f3d',
  },
  {
    platform: 'darwin',
    arch: 'arm64',
    path: `osx/mongodb-macos-arm64-${mongod_version}.tgz`,
    sha256: 'ef8301d05cdb4686775aee1ddce391b5f1cd67cdc61179c2d21dab246a2c4f1b',
  },
];

/** Chooses the archive for a platform. @throws Error if the hash of none is known */
export function chooseArchive({ platform, arch, glibc }: Platform = readPlatform()): Archive {
  const fitting = archives.find(
    (archive) =>
      archive.platform === platform &&
      archive.arch === arch &&
      (archive.min_glibc === undefined || isAtLeast(glibc, archive.min_glibc)),
  );
  if (fitting !== undefined) return fitting;
  const system = [platform, arch, ...(platform === 'linux' ? [glibc ? `glibc ${glibc}` : 'without glibc'] : [])];
  throw new Error(
    `no verified archive of MongoDB ${mongod_version} for ${system.join(' ')}; set MONGODB_URI or MONGOMS_SYSTEM_BINARY`,
  );
}

function isAtLeast(glibc: string | undefined, minimum: number): boolean {
  const [major = 0, minor = 0] = (glibc ?? '').split('.').map(Number);
  const [minMajor = 0, minMinor = 0] = String(minimum).split('.').map(Number);
  return major > minMajor || (major === minMajor && minor >= minMinor);
}

function readPlatform(): Platform {
  const { header } = process.report.getReport() as unknown as { header: { glibcVersionRuntime?: string } };
  return { platform: process.platform, arch: process.arch, glibc: header.glibcVersionRuntime };
}

/** The path of the archive's mongod in the cache. */
export function findArchiveMongod(cacheDir: string): string {
  return join(cacheDir, `mongod-${mongod_version}`, 'mongod');
}

/** Finds the mongod of an earlier download. It was renamed into the cache after the hash of its archive was verified. */
export async function findDownloadedMongod(path: string): Promise<string> {
  await access(path).catch(() => {
    throw new Error(`none at ${path}`);
  });
  return path;
}

/** The URL of an archive: MONGOMS_DOWNLOAD_URL, or its path on MONGOMS_DOWNLOAD_MIRROR or MongoDB's server. */
function archiveUrl(env: Environment, { path }: Archive): URL {
  if (env.MONGOMS_DOWNLOAD_URL) return new URL(env.MONGOMS_DOWNLOAD_URL);
  return new URL(path, `${env.MONGOMS_DOWNLOAD_MIRROR || download_origin}/`);
}

/**
 * Downloads an archive, verifies its SHA-256 and extracts its mongod to `target`.
 * @throws Error if MONGOMS_RUNTIME_DOWNLOAD forbids it, the download fails or the hash differs
 */
export async function downloadArchive(
  env: Environment,
  archive: Archive,
  target: string,
  print: (line: string) => void,
): Promise<string> {
  if (/^(0|off|no|false)$/i.test(env.MONGOMS_RUNTIME_DOWNLOAD ?? '')) {
    throw new Error('switched off by MONGOMS_RUNTIME_DOWNLOAD');
  }
  const cacheDir = dirname(dirname(target));
  await mkdir(cacheDir, { recursive: true });
  // in the file system of the target, where a rename is atomic; with a unique name, as other processes may download too
  const folder = await mkdtemp(join(cacheDir, 'fetch-'));
  try {
    const file = join(folder, 'archive.tgz');
    const sha256 = await download(archiveUrl(env, archive), env, file, print);
    if (sha256 !== archive.sha256) throw new Error(`the archive is not the expected one (its SHA-256 is ${sha256})`);
    const binary = join(folder, 'mongod');
    await extractFile(createReadStream(file).pipe(createGunzip()), /\/bin\/mongod$/, binary);
    await mkdir(dirname(target), { recursive: true });
    await rename(binary, target);
    return target;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** @returns the SHA-256 of the file */
async function download(url: URL, env: Environment, file: string, print: (line: string) => void): Promise<string> {
  const response = await openDownload(url, env, AbortSignal.timeout(download_timeout_ms));
  print(`downloading MongoDB ${mongod_version} from ${url.origin}, once`);
  const bar = createProgressBar(Number(response.headers['content-length'] ?? 0));
  const output = await open(file, 'wx', 0o600);
  const hash = createHash('sha256');
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      hash.update(chunk);
      await output.writeFile(chunk);
      bytes += chunk.length;
      bar.update(bytes);
    }
  } finally {
    bar.stop();
    await output.close();
  }
  return hash.digest('hex');
}

const tar_block_bytes = 512;

/** Writes the first file of a tar stream whose name matches to `target`, executable. @throws Error if there is none */
async function extractFile(tar: AsyncIterable<Buffer>, name: RegExp, target: string): Promise<void> {
  const read = createReader(tar);
  for (;;) {
    const header: Buffer[] = [];
    await read(tar_block_bytes, (part) => header.push(part));
    const fields = Buffer.concat(header).toString('latin1');
    const bytes = Number.parseInt(fields.slice(124, 136), 8) || 0;
    if (!name.test(fields.slice(0, 100).replace(/\0[\s\S]*$/, ''))) {
      await read(Math.ceil(bytes / tar_block_bytes) * tar_block_bytes, () => undefined);
      continue;
    }
    const output = await open(target, 'wx', 0o755);
    try {
      await read(bytes, (part) => output.writeFile(part));
    } finally {
      await output.close();
    }
    return;
  }
}

/** @returns a function that passes the next `bytes` of a stream on, part by part. @throws Error if the stream ends first */
function createReader(stream: AsyncIterable<Buffer>) {
  const iterator = stream[Symbol.asyncIterator]();
  let buffered: Buffer = Buffer.alloc(0);
  return async (bytes: number, onPart: (part: Buffer) => unknown): Promise<void> => {
    for (let left = bytes; left > 0; ) {
      if (buffered.length === 0) {
        const { done, value } = await iterator.next();
        if (done) throw new Error('the archive holds no mongod');
        buffered = value;
      }
      const part = buffered.subarray(0, left);
      await onPart(part);
      buffered = buffered.subarray(part.length);
      left -= part.length;
    }
  };
}
