import { constants, lstat as lstatWithCallback, type Stats } from 'node:fs';
import { type FileHandle, open, opendir, readlink, realpath } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { promisify } from 'node:util';
import { describeRange } from '../../http/byte-range.js';
import { required } from '../../schema/fields.js';
import { MissingFault, StorageFault } from '../limits.js';
import { type FileRequest, type FileResponse, isSafeRelativePath, type Provider, type StoredFile } from './provider.js';
import { folder } from './settings.js';

const page_size = 500;

/** Two thirds of the cost of `lstat` of fs/promises, which dominates a long listing. */
const lstat = promisify(lstatWithCallback);

/** Folders of this machine, below the account's folder in FILESTORE_LOCAL_ROOT. Symbolic links are never followed. */
export const local: Provider = {
  name: 'local',
  fields: {
    path: required(folder(), { about: 'Of local: folder below FILESTORE_LOCAL_ROOT/{account}.', example: '.' }),
  },
  faultField: { address: 'path', login: 'path', folder: 'path' },
  open({ path = '' }, { local_root }, account) {
    async function findLinkedFolder(): Promise<string> {
      if (local_root === undefined) throw new StorageFault('folder', 'is off, as FILESTORE_LOCAL_ROOT is not set');
      return assertRealFolder(join(await realpath(local_root).catch(throwMissing), account, path));
    }
    return {
      async check() {
        await findLinkedFolder();
      },
      async *files({ signal }) {
        yield* walk(await findLinkedFolder(), signal);
      },
      async open(path, request) {
        return openFile(await findLinkedFolder(), path, request);
      },
    };
  },
};

async function* walk(root: string, signal: AbortSignal): AsyncGenerator<StoredFile[]> {
  const folders = [''];
  for (let prefix = folders.pop(); prefix !== undefined; prefix = folders.pop()) {
    const folderPath = await assertRealFolder(join(root, prefix));
    let paths: string[] = [];
    for await (const entry of await opendir(folderPath).catch(throwMissing)) {
      if (signal.aborted) throw new StorageFault('folder', 'could not be read in time');
      if (entry.isDirectory()) folders.push(`${prefix}${entry.name}/`);
      else if (entry.isFile()) paths.push(prefix + entry.name);
      if (paths.length < page_size) continue;
      yield readStats(root, paths);
      paths = [];
    }
    yield readStats(root, paths);
  }
}

async function openFile(root: string, path: string, { method, headers }: FileRequest): Promise<FileResponse> {
  if (!isSafeRelativePath(path)) throwMissing();
  const { handle, stats } = await openInside(join(root, path));
  const etag = `"${stats.size.toString(36)}-${Math.floor(stats.mtimeMs).toString(36)}"`;
  const { start, end, ...answer } = describeRange(headers, etag, stats.size);
  const isBodyless = method === 'HEAD' || end < start;
  if (isBodyless) await handle.close();
  return {
    ...answer,
    headers: { ...answer.headers, 'Last-Modified': stats.mtime.toUTCString() },
    body: isBodyless ? undefined : handle.createReadStream({ start, end }),
  };
}

/** Opens a file that no symbolic link leads to. A folder swapped for a link during the call is found out afterwards. */
async function openInside(target: string): Promise<{ handle: FileHandle; stats: Stats }> {
  if ((await realpath(target).catch(throwMissing)) !== target) throwMissing();
  // O_NONBLOCK: do not wait on a FIFO. O_NOFOLLOW: refuse a symbolic link swapped in for the file itself.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(target, flags).catch(throwMissing);
  try {
    const stats = await handle.stat();
    if (!stats.isFile() || (await findOpenedPath(handle, target, stats)) !== target) throwMissing();
    return { handle, stats };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** The real path of an open file; undefined if `target` has become another file and the system does not reveal the path. */
async function findOpenedPath({ fd }: FileHandle, target: string, { dev, ino }: Stats): Promise<string | undefined> {
  const opened = await readlink(`/proc/self/fd/${fd}`).catch(() => undefined);
  if (opened !== undefined) return opened;
  const path = await realpath(target).catch(throwMissing);
  const stats = await lstat(path).catch(throwMissing);
  return stats.dev === dev && stats.ino === ino ? path : undefined;
}

function throwMissing(cause?: unknown): never {
  throw new MissingFault({ cause });
}

/** @returns the path of a folder that no symbolic link leads to. @throws StorageFault */
async function assertRealFolder(path: string): Promise<string> {
  const plain = path.length > 1 && path.endsWith(sep) ? path.slice(0, -1) : path;
  const stats = await lstat(plain).catch(throwMissing);
  if (stats.isFile()) throw new StorageFault('folder', 'is no folder');
  return stats.isDirectory() && (await realpath(plain).catch(throwMissing)) === plain ? plain : throwMissing();
}

/** Leaves out files that were deleted while the folder was read. */
async function readStats(root: string, paths: readonly string[]): Promise<StoredFile[]> {
  const stats = await Promise.all(
    paths.map((path) => lstat(join(root, path)).catch((): Stats | undefined => undefined)),
  );
  return paths.flatMap((path, index) => {
    const fileStats = stats[index];
    if (fileStats?.isFile() !== true) return [];
    return [{ path, size: fileStats.size, modified_at: Math.floor(fileStats.mtimeMs / 1000) }];
  });
}
