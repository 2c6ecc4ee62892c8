import { constants, lstat as lstatWithCallback, type Stats } from 'node:fs';
import { open, opendir, realpath } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { promisify } from 'node:util';
import { required } from '../schema/fields.js';
import { rangeOf } from './byte-range.js';
import { StorageFault } from './limits.js';
import { type Provider, type StoredFile, staysBelow } from './provider.js';
import { folder } from './settings.js';

const page_size = 500;

/** Two thirds of the cost of the one in fs/promises, which is what a long listing costs. */
const lstat = promisify(lstatWithCallback);

/** Folders of the machine below FILESTORE_LOCAL_ROOT. Symbolic links are not followed, wherever they lead. */
export const local: Provider = {
  name: 'local',
  fields: { path: required(folder()) },
  faultField: { address: 'path', login: 'path', folder: 'path' },
  open({ path = '' }, { local_root }) {
    /** Where the linked folder really is. */
    async function rootFolder(): Promise<string> {
      if (local_root === undefined) throw new StorageFault('folder', 'is off, as FILESTORE_LOCAL_ROOT is not set');
      return realFolder(join(await realpath(local_root).catch(missing), path));
    }

    return {
      async check() {
        await rootFolder();
      },

      async *files({ signal }) {
        const root = await rootFolder();
        const folders = [''];
        for (let within = folders.pop(); within !== undefined; within = folders.pop()) {
          const here = await realFolder(join(root, within));
          let names: string[] = [];
          for await (const entry of await opendir(here).catch(missing)) {
            if (signal.aborted) throw new StorageFault('folder', 'could not be read in time');
            if (entry.isDirectory()) folders.push(`${within}${entry.name}/`);
            else if (entry.isFile()) names.push(within + entry.name);
            if (names.length < page_size) continue;
            yield filesAt(root, names);
            names = [];
          }
          yield filesAt(root, names);
        }
      },

      async open(path, { method, headers }) {
        const root = await rootFolder();
        const target = join(root, path);
        if (!staysBelow(path) || (await realpath(target).catch(missing)) !== target) missing();
        // no waiting for the other end of a pipe; a link put there meanwhile is refused
        const handle = await open(target, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
          missing,
        );
        const stats = await handle.stat();
        const tag = `"${stats.size.toString(36)}-${Math.floor(stats.mtimeMs).toString(36)}"`;
        const whole = headers['if-range'] !== undefined && headers['if-range'] !== tag;
        const range = whole ? undefined : rangeOf(headers.range, stats.size);
        const { start, end } = range ?? { start: 0, end: stats.size - 1 };
        const known = { 'accept-ranges': 'bytes', etag: tag, 'last-modified': stats.mtime.toUTCString() };
        const bare = !stats.isFile() || range === null || method === 'HEAD' || end < start;
        if (bare) await handle.close();
        if (!stats.isFile()) missing();
        if (range === null)
          return { status: 416, headers: { 'content-range': `bytes */${stats.size}` }, body: undefined };
        return {
          status: range === undefined ? 200 : 206,
          headers: {
            ...known,
            'content-length': end - start + 1,
            ...(range !== undefined && { 'content-range': `bytes ${start}-${end}/${stats.size}` }),
          },
          body: bare ? undefined : handle.createReadStream({ start, end }),
        };
      },
    };
  },
};

function missing(cause?: unknown): never {
  throw new StorageFault('folder', 'does not exist', { cause });
}

/** @returns the folder's path if no part of it is a symbolic link. @throws StorageFault */
async function realFolder(path: string): Promise<string> {
  const plain = path.length > 1 && path.endsWith(sep) ? path.slice(0, -1) : path;
  const stats = await lstat(plain).catch(missing);
  return stats.isDirectory() && (await realpath(plain).catch(missing)) === plain ? plain : missing();
}

/** What is gone meanwhile is left out. */
async function filesAt(root: string, paths: readonly string[]): Promise<StoredFile[]> {
  const stats = await Promise.all(
    paths.map((path) => lstat(join(root, path)).catch((): Stats | undefined => undefined)),
  );
  return paths.flatMap((path, index) => {
    const found = stats[index];
    return found?.isFile() === true ? [{ path, size: found.size, modified_at: Math.floor(found.mtimeMs / 1000) }] : [];
  });
}
