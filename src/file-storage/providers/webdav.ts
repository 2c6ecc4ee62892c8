import { decodePercent } from '../../lib/percent-decoding.js';
import { text, textMatching } from '../../schema/fields/text.js';
import { required } from '../../schema/fields.js';
import { assertStatus, readResponse } from '../egress.js';
import { createTooManyFilesFault, max_files, max_path_length, StorageFault, type StorageLimits } from '../limits.js';
import { encodePath, type Provider, parseEpochSeconds, type StoredFile } from './provider.js';
import { address, secret } from './settings.js';
import { readXml } from './xml.js';

const propfind_body = `<?xml version="1.0" encoding="utf-8"?>
<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getlastmodified/></prop></propfind>`;

const max_concurrent_folders = 8;

const forwardedHeaders = ['content-length', 'content-range', 'accept-ranges', 'last-modified', 'etag'];

/** Nextcloud, ownCloud, Apache and other WebDAV servers (RFC 4918); links to the files lead through the service. */
export const webdav: Provider = {
  name: 'webdav',
  fields: {
    url: required(address(), { about: 'Of webdav: the folder to link.', example: 'https://storage.example/files/' }),
    username: required(
      textMatching(200, (value) => !value.includes(':'), 'a name without colon', { pattern: '^[^:\\u0000]*$' }),
      { about: 'Of webdav.', example: 'alice' },
    ),
    password: required(secret(text(1000)), { about: 'Of webdav. Never shown.', example: 'open sesame' }),
  },
  faultField: { address: 'url', login: 'password', folder: 'url' },
  open({ url, username, password }, { network }, account) {
    const root = new URL(url ?? '');
    root.pathname = root.pathname.replace(/\/*$/, '/');
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
    const urlOf = (path: string) => new URL(encodePath(path), root);

    async function propfind(path: string, depth: 0 | 1, limits: StorageLimits): Promise<Member[]> {
      const folder = urlOf(path);
      const response = await network.send(folder, {
        account,
        method: 'PROPFIND',
        headers: {
          Authorization: authorization,
          Depth: String(depth),
          'Content-Type': 'application/xml; charset=utf-8',
        },
        body: propfind_body,
        signal: limits.signal,
      });
      await assertStatus(response, 207);
      return parseMembers(readResponse(response, limits), folder);
    }

    return {
      async check(limits) {
        const [linkedFolder] = await propfind('', 0, limits);
        if (linkedFolder?.isFolder !== true) throw new StorageFault('folder', 'is no folder');
      },

      async *files(limits) {
        const folders = [''];
        while (folders.length > 0) {
          const batch = folders.splice(-max_concurrent_folders);
          const listings = await Promise.all(batch.map((folder) => propfind(folder, 1, limits)));
          for (const [index, members] of listings.entries()) {
            const files: StoredFile[] = [];
            for (const { name, isFolder, size, modified_at } of members) {
              const path = `${batch[index]}${name}`;
              // the folder itself has no name
              if (name === '' || path.length > max_path_length) continue;
              if (isFolder) folders.push(`${path}/`);
              else files.push({ path, size, modified_at });
            }
            yield files;
          }
        }
      },

      async open(path, { method, headers }, signal) {
        const response = await network.send(urlOf(path), {
          account,
          method,
          headers: { ...headers, Authorization: authorization, 'Accept-Encoding': 'identity' },
          signal,
        });
        const status = response.statusCode ?? 0;
        if (status !== 206 && status !== 416) await assertStatus(response, 200);
        const forwarded = forwardedHeaders.flatMap((name) => {
          const value = response.headers[name];
          return value === undefined ? [] : [[name, String(value)]];
        });
        return { status, headers: Object.fromEntries(forwarded), body: response };
      },
    };
  },
};

/** An entry of a folder; the name of the folder itself is empty. */
interface Member extends Omit<StoredFile, 'path'> {
  name: string;
  isFolder: boolean;
}

const readProperties = new Set(['href', 'getcontentlength', 'getlastmodified']);

/** Parses a response to PROPFIND. Entries that are neither the folder itself nor directly in it are left out. */
async function parseMembers(body: AsyncIterable<Buffer>, folder: URL): Promise<Member[]> {
  const members: Member[] = [];
  let properties = new Map<string, string>();
  let isFolder = false;
  await readXml(body, 'multistatus', {
    onOpen(name) {
      if (name === 'response') {
        properties = new Map();
        isFolder = false;
      }
      if (name === 'collection') isFolder = true;
    },
    onClose(name, text) {
      if (name !== 'response') {
        // the first one counts: a folder's properties may contain further `href` elements
        if (readProperties.has(name) && !properties.has(name)) properties.set(name, text.trim());
        return;
      }
      const memberName = parseHref(folder, properties.get('href') ?? '');
      if (memberName === undefined) return;
      const size = Number(properties.get('getcontentlength')) || 0;
      const modified_at = parseEpochSeconds(properties.get('getlastmodified'));
      members.push({ name: memberName, isFolder, size, modified_at });
      if (members.length > max_files) throw createTooManyFilesFault();
    },
  });
  return members;
}

/** @returns the name that `href` has in the folder, empty for the folder itself, undefined for anything elsewhere */
function parseHref(folder: URL, href: string): string | undefined {
  if (!URL.canParse(href, folder.href)) return undefined;
  // URL resolves `.` and `..`. Its host is ignored: servers behind a proxy may name another one.
  const { pathname } = new URL(href, folder);
  const path = decodePercent(pathname)?.replace(/\/$/, '');
  const folderPath = decodePercent(folder.pathname);
  if (path === undefined || folderPath === undefined) return undefined;
  if (`${path}/` === folderPath) return '';
  const name = path.slice(folderPath.length);
  const lastSegment = pathname.replace(/\/$/, '').split('/').at(-1) ?? '';
  const isInFolder = path.startsWith(folderPath) && name === decodePercent(lastSegment);
  return isInFolder && isFileName(name) ? name : undefined;
}

function isFileName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !name.includes('/') && !name.includes('\0');
}
