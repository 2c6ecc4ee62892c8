import { text, textMatching } from '../schema/fields/text.js';
import { required } from '../schema/fields.js';
import { bodyOf, mustAnswer } from './egress.js';
import { StorageFault, type StorageLimits } from './limits.js';
import { encodedPath, epochSeconds, type Provider, type StoredFile } from './provider.js';
import { address, secret } from './settings.js';
import { readXml } from './xml.js';

const asked = `<?xml version="1.0" encoding="utf-8"?>
<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getlastmodified/></prop></propfind>`;

/** Folders that are read at once. */
const most_at_once = 8;

const passed_on = ['content-length', 'content-range', 'accept-ranges', 'last-modified', 'etag'];

/** Nextcloud, ownCloud, Apache and whatever else speaks WebDAV (RFC 4918); its links lead through the service. */
export const webdav: Provider = {
  name: 'webdav',
  fields: {
    url: required(address()),
    username: required(
      textMatching(200, (given) => !given.includes(':'), 'a name without colon', { pattern: '^[^:\\u0000]*$' }),
    ),
    password: required(secret(text(1000))),
  },
  faultField: { address: 'url', login: 'password', folder: 'url' },
  open({ url, username, password }, { network }) {
    const root = new URL(url ?? '');
    root.pathname = root.pathname.replace(/\/*$/, '/');
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
    const addressOf = (path: string) => new URL(encodedPath(path), root);

    async function members(path: string, depth: 0 | 1, bounds: StorageLimits): Promise<Member[]> {
      const folder = addressOf(path);
      const answer = await network.send(folder, {
        method: 'PROPFIND',
        headers: {
          Authorization: authorization,
          Depth: String(depth),
          'Content-Type': 'application/xml; charset=utf-8',
        },
        body: asked,
        signal: bounds.signal,
      });
      await mustAnswer(answer, 207);
      return readMembers(bodyOf(answer, bounds), folder);
    }

    return {
      async check(bounds) {
        const [itself] = await members('', 0, bounds);
        if (itself?.folder !== true) throw new StorageFault('folder', 'is no folder');
      },

      async *files(bounds) {
        const folders = [''];
        while (folders.length > 0) {
          const read = folders.splice(-most_at_once).map(async (folder) => {
            const inside = await members(folder, 1, bounds);
            return inside
              .filter(({ name }) => name !== '')
              .map((member) => ({ ...member, path: folder + member.name }));
          });
          const found = (await Promise.all(read)).flat();
          for (const { folder, path } of found) if (folder) folders.push(`${path}/`);
          yield found
            .filter(({ folder }) => !folder)
            .map(({ path, size, modified_at }) => ({ path, size, modified_at }));
        }
      },

      async open(path, { method, headers }, signal) {
        const answer = await network.send(addressOf(path), {
          method,
          headers: { ...headers, Authorization: authorization, 'Accept-Encoding': 'identity' },
          signal,
        });
        const status = answer.statusCode ?? 0;
        if (status !== 206 && status !== 416) await mustAnswer(answer, 200);
        const given = passed_on.flatMap((name) => {
          const value = answer.headers[name];
          return value === undefined ? [] : [[name, String(value)]];
        });
        return { status, headers: Object.fromEntries(given), body: answer };
      },
    };
  },
};

/** What a folder holds; the folder itself has no name. */
interface Member extends Omit<StoredFile, 'path'> {
  name: string;
  folder: boolean;
}

/** An answer to PROPFIND. Whatever is not the folder itself or right inside it is left out, wherever it claims to be. */
async function readMembers(body: AsyncIterable<Buffer>, folder: URL): Promise<Member[]> {
  const members: Member[] = [];
  let facts: Record<string, string> = {};
  let isFolder = false;
  await readXml(body, 'multistatus', {
    opened(name) {
      if (name === 'response') {
        facts = {};
        isFolder = false;
      }
      if (name === 'collection') isFolder = true;
    },
    closed(name, text) {
      if (name !== 'response') {
        // a folder's properties may hold addresses of their own
        facts[name] ??= text.trim();
        return;
      }
      const own = nameIn(folder, facts.href ?? '');
      if (own === undefined) return;
      const modified_at = epochSeconds(facts.getlastmodified);
      members.push({ name: own, folder: isFolder, size: Number(facts.getcontentlength) || 0, modified_at });
    },
  });
  return members;
}

/** The name of what `href` means, if it is right inside the folder; empty for the folder itself. */
function nameIn(folder: URL, href: string): string | undefined {
  try {
    // servers behind a proxy may name another host; the path is what counts, without . and ..
    const { pathname } = new URL(href, folder);
    const [inside, outside] = [decodeURIComponent(pathname).replace(/\/$/, ''), decodeURIComponent(folder.pathname)];
    if (`${inside}/` === outside) return '';
    const name = inside.slice(outside.length);
    const encoded = pathname.replace(/\/$/, '').split('/').at(-1) ?? '';
    return inside.startsWith(outside) && name === decodeURIComponent(encoded) && isName(name) ? name : undefined;
  } catch {
    return undefined;
  }
}

function isName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !name.includes('/') && !name.includes('\0');
}
