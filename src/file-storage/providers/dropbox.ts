import { runInParallel } from '../../lib/parallel.js';
import { required } from '../../schema/fields.js';
import { assertStatus, readResponseText } from '../egress.js';
import { createProtocolFault, StorageFault, type StorageLimits } from '../limits.js';
import { isSafeRelativePath, type Provider, parseEpochSeconds, type StoredFile } from './provider.js';
import { secret, token } from './settings.js';

const page_size = 2000;
const max_concurrent_links = 10;
const max_link_response_bytes = 64 * 1024;

interface Entry {
  '.tag'?: string;
  path_display?: string;
  size?: number;
  client_modified?: string;
}

/** Creates the provider for Dropbox's HTTP API version 2 at `api`; its links are temporary links of Dropbox. */
export function createDropbox(api: string): Provider {
  return {
    name: 'dropbox',
    fields: {
      access_token: required(secret(token(4000)), { about: 'Of dropbox. Never shown.', example: 'sl.example' }),
    },
    faultField: { address: 'access_token', login: 'access_token', folder: 'access_token' },
    open({ access_token }, { network }, account) {
      async function call(name: string, body: object, limits: StorageLimits): Promise<Record<string, unknown>> {
        const response = await network.send(new URL(`/2/files/${name}`, api), {
          account,
          method: 'POST',
          headers: { Authorization: `Bearer ${access_token}`, 'Content-Type': 'application/json' },
          body: JSON.stringify(body),
          signal: limits.signal,
        });
        // Dropbox answers 400 to a malformed token
        if (response.statusCode === 400) throw new StorageFault('login', 'was refused by the storage');
        await assertStatus(response, 200);
        return parseResponse(await readResponseText(response, limits));
      }

      const listFolder = (limit: number, limits: StorageLimits) =>
        call('list_folder', { path: '', recursive: true, include_non_downloadable_files: false, limit }, limits);

      async function getTemporaryLink(path: string, limits: StorageLimits): Promise<string> {
        const { link } = await call('get_temporary_link', { path: `/${path}` }, limits);
        if (typeof link !== 'string') throw createProtocolFault();
        return link;
      }

      return {
        max_links: 100,
        async check(limits) {
          parseFiles(await listFolder(1, limits));
        },
        async *files(limits) {
          let page = await listFolder(page_size, limits);
          yield parseFiles(page);
          while (page.has_more === true) {
            page = await call('list_folder/continue', { cursor: page.cursor }, limits);
            yield parseFiles(page);
          }
        },
        async links(files, limits) {
          const links: (string | undefined)[] = [];
          await runInParallel(files.entries(), max_concurrent_links, async ([index, { path }]) => {
            links[index] = await getTemporaryLink(path, limits).catch(() => undefined);
          });
          return links;
        },
        async open(path, _request, signal) {
          return { location: await getTemporaryLink(path, { signal, bytes: max_link_response_bytes }) };
        },
      };
    },
  };
}

export const dropbox = createDropbox('https://api.dropboxapi.com');

function parseResponse(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch (error) {
    throw createProtocolFault(error);
  }
}

function parseFiles({ entries }: Record<string, unknown>): StoredFile[] {
  if (!Array.isArray(entries)) throw createProtocolFault();
  return (entries as Entry[])
    .filter((entry) => entry['.tag'] === 'file' && typeof entry.path_display === 'string')
    .map(({ path_display = '', size = 0, client_modified }) => ({
      path: path_display.replace(/^\//, ''),
      size,
      modified_at: parseEpochSeconds(client_modified),
    }))
    .filter(({ path }) => isSafeRelativePath(path));
}
