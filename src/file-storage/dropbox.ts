import { required } from '../schema/fields.js';
import { mustAnswer, textOf } from './egress.js';
import { StorageFault, type StorageLimits } from './limits.js';
import { epochSeconds, type Provider, type StoredFile, staysBelow } from './provider.js';
import { secret, token } from './settings.js';

const page_size = 2000;
const links_at_once = 10;

interface Entry {
  '.tag'?: string;
  path_display?: string;
  size?: number;
  client_modified?: string;
}

/** Dropbox by its HTTP interface of version 2 at `api`; its links are temporary ones. */
export function dropboxAt(api: string): Provider {
  return {
    name: 'dropbox',
    fields: { access_token: required(secret(token(4000))) },
    faultField: { address: 'access_token', login: 'access_token', folder: 'access_token' },
    open({ access_token }, { network }) {
      async function call(name: string, body: object, bounds: StorageLimits): Promise<Record<string, unknown>> {
        const answer = await network.send(new URL(`/2/files/${name}`, api), {
          method: 'POST',
          headers: { Authorization: `Bearer ${access_token}`, 'Content-Type': 'application/json' },
          body: JSON.stringify(body),
          signal: bounds.signal,
        });
        // a token that is no token at all is a bad request
        if (answer.statusCode === 400) throw new StorageFault('login', 'was refused by the storage');
        await mustAnswer(answer, 200);
        return parsed(await textOf(answer, bounds));
      }

      const list = (limit: number, bounds: StorageLimits) =>
        call('list_folder', { path: '', recursive: true, include_non_downloadable_files: false, limit }, bounds);

      async function linkTo(path: string, bounds: StorageLimits): Promise<string> {
        const { link } = await call('get_temporary_link', { path: `/${path}` }, bounds);
        if (typeof link !== 'string') throw odd();
        return link;
      }

      return {
        max_links: 100,
        async check(bounds) {
          filesIn(await list(1, bounds));
        },
        async *files(bounds) {
          let page = await list(page_size, bounds);
          yield filesIn(page);
          while (page.has_more === true) {
            page = await call('list_folder/continue', { cursor: page.cursor }, bounds);
            yield filesIn(page);
          }
        },
        async links(files, bounds) {
          const links: (string | undefined)[] = [];
          const left = files.entries();
          const worker = async () => {
            for (const [index, { path }] of left) links[index] = await linkTo(path, bounds).catch(() => undefined);
          };
          await Promise.all(Array.from({ length: links_at_once }, worker));
          return links;
        },
        async open(path, _wanted, signal) {
          return { location: await linkTo(path, { signal, bytes: 64 * 1024 }) };
        },
      };
    },
  };
}

export const dropbox = dropboxAt('https://api.dropboxapi.com');

const odd = () => new StorageFault('address', 'does not answer as such a storage does');

function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    throw odd();
  }
}

function filesIn({ entries }: Record<string, unknown>): StoredFile[] {
  if (!Array.isArray(entries)) throw odd();
  return (entries as Entry[])
    .filter((entry) => entry['.tag'] === 'file' && typeof entry.path_display === 'string')
    .map(({ path_display = '', size = 0, client_modified }) => ({
      path: path_display.replace(/^\//, ''),
      size,
      modified_at: epochSeconds(client_modified),
    }))
    .filter(({ path }) => staysBelow(path));
}
