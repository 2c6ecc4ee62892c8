import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, dirname } from 'node:path/posix';
import { setTimeout as sleep } from 'node:timers/promises';

/** A stand-in for Dropbox's HTTP API, as far as its documentation says what listing and temporary links do. */
export interface DropboxStandIn {
  /** In place of https://api.dropboxapi.com; content comes from here too. */
  url: string;
  access_token: string;
  /** Stores a file, and creates its folders. `path` begins with a slash and keeps its case. */
  put(path: string, body: string | Buffer, options?: { modified_at?: Date; downloadable?: boolean }): void;
  makeFolder(path: string): void;
  remove(path: string): void;
  /** The next `count` calls get 429, with a body of JSON or, as Dropbox may do, of plain text. */
  throttle(count: number, retry_after_s: number, body?: 'json' | 'text'): void;
  /** From now on the token is expired: 401. */
  expireToken(): void;
  /** Links given out so far answer 410. */
  expireLinks(): void;
  /** Cursors given out so far answer 409 reset. */
  expireCursors(): void;
  /** The number of calls of an endpoint such as `files/list_folder`. */
  calls(endpoint: string): number;
  /** The highest number of calls of files/get_temporary_link under way at once. */
  maxConcurrentLinks(): number;
  stop(): Promise<void>;
}

interface Entry {
  tag: 'file' | 'folder' | 'deleted';
  path: string;
  id: string;
  rev: string;
  body: Buffer;
  client_modified: Date;
  server_modified: Date;
  downloadable: boolean;
}

interface Reply {
  status: number;
  body: string | object;
  headers?: Record<string, string>;
}

interface Listing {
  lower: string;
  recursive: boolean;
  include_deleted: boolean;
  limit: number;
  /** The remaining entries of the tree as it was when the listing began. */
  rest: object[];
}

type Arguments = Record<string, unknown>;

const pathPattern = /^(?:(?:\/(?:.|[\r\n])*)?|id:.*|ns:[0-9]+(?:\/.*)?)$/;
const flags = [
  'recursive',
  'include_media_info',
  'include_deleted',
  'include_has_explicit_shared_members',
  'include_mounted_folders',
  'include_non_downloadable_files',
];
const knownArguments: Record<string, string[]> = {
  'files/list_folder': ['path', 'limit', 'shared_link', 'include_property_groups', ...flags],
  'files/list_folder/continue': ['cursor'],
  'files/get_temporary_link': ['path'],
};
const scopeOf: Record<string, string> = {
  'files/list_folder': 'files.metadata.read',
  'files/list_folder/continue': 'files.metadata.read',
  'files/get_temporary_link': 'files.content.read',
};

/**
 * Starts the stand-in on 127.0.0.1. `page_size` bounds the pages in addition to the `limit` of the request;
 * `link_delay_ms` is how long a call of files/get_temporary_link takes; `scopes` are the rights of the token.
 */
export async function startDropbox(
  options: { page_size?: number; link_delay_ms?: number; scopes?: string[] } = {},
): Promise<DropboxStandIn> {
  const { page_size = 2_000, link_delay_ms = 20, scopes = Object.values(scopeOf) } = options;
  const access_token = `sl.u.${randomBytes(48).toString('base64url')}`;
  const tree = new Map<string, Entry>();
  const listings = new Map<string, Listing>();
  const links = new Map<string, Entry | 'expired'>();
  const called = new Map<string, number>();
  let throttled = { count: 0, retry_after_s: 0, body: 'json' };
  let expired = false;
  let linksNow = 0;
  let maxLinks = 0;
  let number = 0;

  const set = (path: string, tag: Entry['tag'], given: Partial<Entry> = {}) => {
    const id = tree.get(path.toLowerCase())?.id ?? `id:${randomBytes(16).toString('base64url')}`;
    number += 1;
    const times = { client_modified: new Date(), server_modified: new Date() };
    const rev = number.toString(16).padStart(15, '0');
    tree.set(path.toLowerCase(), { tag, path, id, rev, body: Buffer.alloc(0), downloadable: true, ...times, ...given });
  };
  const makeFolder = (path: string) => {
    if (path === '/' || tree.get(path.toLowerCase())?.tag === 'folder') return;
    makeFolder(dirname(path));
    set(path, 'folder');
  };
  const find = (path: string) => {
    const entry = path.startsWith('id:')
      ? [...tree.values()].find(({ id }) => id === path)
      : tree.get(path.toLowerCase().replace(/\/$/, ''));
    return entry?.tag === 'deleted' ? undefined : entry;
  };

  const page = (listing: Listing): Reply => {
    const entries = listing.rest.slice(0, Math.min(listing.limit, page_size));
    const rest = listing.rest.slice(entries.length);
    const cursor = randomBytes(60).toString('base64url');
    listings.set(cursor, { ...listing, rest });
    return { status: 200, body: { entries, cursor, has_more: rest.length > 0 } };
  };

  const endpoints: Record<string, (given: Arguments) => Reply | Promise<Reply>> = {
    'files/list_folder'({ path, recursive = false, include_deleted = false, limit = 2_000, ...others }) {
      const name = 'files/list_folder';
      if (typeof path !== 'string') return badRequest(name, "request body: missing required field 'path'");
      if (path === '/')
        return badRequest(name, 'request body: path: Specify the root folder as an empty string rather than as "/".');
      if (!pathPattern.test(path))
        return badRequest(name, `request body: path: '${path}' did not match pattern '${pathPattern.source}'`);
      if (!Number.isInteger(limit) || Number(limit) < 1 || Number(limit) > 2_000)
        return badRequest(name, `request body: limit: ${limit} is not within 1 and 2000`);
      if ([recursive, include_deleted].some((flag) => typeof flag !== 'boolean'))
        return badRequest(name, 'request body: expected boolean');
      const top = path === '' ? undefined : find(path);
      if (path !== '' && top === undefined) return lookupError('not_found');
      if (top?.tag === 'file') return lookupError('not_folder');
      const lower = top === undefined ? '' : top.path.toLowerCase();
      const rest = [...tree]
        .filter(([key]) => (recursive ? key === lower || key.startsWith(`${lower}/`) : parentOf(key) === lower))
        .filter(([, { tag }]) => include_deleted || tag !== 'deleted')
        .filter(([, { downloadable }]) => others.include_non_downloadable_files !== false || downloadable)
        .map(([, entry]) => ({ '.tag': entry.tag, ...metadataOf(entry) }));
      return page({
        lower,
        recursive: recursive === true,
        include_deleted: include_deleted === true,
        limit: Number(limit),
        rest,
      });
    },
    'files/list_folder/continue'({ cursor }) {
      const listing = typeof cursor === 'string' ? listings.get(cursor) : undefined;
      if (listing !== undefined) return page(listing);
      if (typeof cursor === 'string' && cursor.length === 80) return failure(409, 'reset', { '.tag': 'reset' });
      return badRequest('files/list_folder/continue', 'Invalid "cursor" parameter');
    },
    async 'files/get_temporary_link'({ path }) {
      const name = 'files/get_temporary_link';
      if (typeof path !== 'string') return badRequest(name, "request body: missing required field 'path'");
      if (path === '' || !pathPattern.test(path))
        return badRequest(name, `request body: path: '${path}' did not match pattern`);
      linksNow += 1;
      maxLinks = Math.max(maxLinks, linksNow);
      await sleep(link_delay_ms);
      linksNow -= 1;
      const entry = find(path);
      if (entry === undefined) return lookupError('not_found');
      if (entry.tag === 'folder') return lookupError('not_file');
      if (!entry.downloadable) return failure(409, 'unsupported_file', { '.tag': 'unsupported_file' });
      const key = randomBytes(60).toString('base64url');
      links.set(key, entry);
      return { status: 200, body: { metadata: metadataOf(entry), link: `${url}/content/${key}/file` } };
    },
  };

  const answer = async (request: IncomingMessage, content: string): Promise<Reply> => {
    const name = request.url?.replace(/^\/2\//, '') ?? '';
    const endpoint = endpoints[name];
    if (endpoint === undefined) return { status: 404, body: 'Unknown API function' };
    called.set(name, (called.get(name) ?? 0) + 1);
    if (request.method !== 'POST') return badRequest(name, 'This function requires POST', 405);
    const token = /^Bearer (.*)$/.exec(request.headers.authorization ?? '')?.[1];
    if (token === undefined) return badRequest(name, 'Invalid authorization value in HTTP header/URL parameter');
    if (!/^[\w.~+/=-]+$/.test(token)) return badRequest(name, 'The given OAuth 2 access token is malformed.');
    if (token !== access_token) return failure(401, 'invalid_access_token', { '.tag': 'invalid_access_token' });
    if (expired) return failure(401, 'expired_access_token', { '.tag': 'expired_access_token' });
    const required_scope = scopeOf[name] ?? '';
    if (!scopes.includes(required_scope))
      return failure(401, 'missing_scope', { '.tag': 'missing_scope', required_scope });
    if (throttled.count > 0) {
      throttled.count -= 1;
      return tooMany(throttled.retry_after_s, throttled.body);
    }
    if (!/^application\/json(?:; *charset=utf-8)?$/i.test(request.headers['content-type'] ?? ''))
      return badRequest(name, 'Bad HTTP "Content-Type" header. Expecting "application/json".');
    const given = parsed(content);
    if (given === undefined) return badRequest(name, 'request body: could not decode input as JSON');
    const unknown = Object.keys(given).find((key) => !knownArguments[name]?.includes(key));
    if (unknown !== undefined) return badRequest(name, `request body: unknown field '${unknown}'`);
    return endpoint(given);
  };

  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const key = /^\/content\/([^/]+)\//.exec(request.url ?? '')?.[1];
    if (key !== undefined) {
      const entry = links.get(key);
      const headers = { 'Content-Type': 'application/octet-stream' };
      if (entry === undefined) response.writeHead(404).end();
      else if (entry === 'expired') response.writeHead(410).end();
      else response.writeHead(200, { ...headers, 'Content-Length': entry.body.length }).end(entry.body);
      return;
    }
    const { status, body, headers } = await answer(request, Buffer.concat(chunks).toString());
    const isText = typeof body === 'string';
    const type = isText ? 'text/plain; charset=utf-8' : 'application/json';
    response.writeHead(status, { 'Content-Type': type, ...headers }).end(isText ? body : JSON.stringify(body));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  return {
    url,
    access_token,
    put(path, body, { modified_at = new Date(), downloadable = true } = {}) {
      makeFolder(dirname(path));
      set(path, 'file', {
        body: typeof body === 'string' ? Buffer.from(body) : body,
        client_modified: modified_at,
        downloadable,
      });
    },
    makeFolder,
    remove(path) {
      const lower = path.toLowerCase();
      for (const key of tree.keys()) if (key.startsWith(`${lower}/`)) tree.delete(key);
      set(tree.get(lower)?.path ?? path, 'deleted');
    },
    throttle(count, retry_after_s, body = 'json') {
      throttled = { count, retry_after_s, body };
    },
    expireToken() {
      expired = true;
    },
    expireLinks() {
      for (const key of links.keys()) links.set(key, 'expired');
    },
    expireCursors() {
      listings.clear();
    },
    calls: (endpoint) => called.get(endpoint) ?? 0,
    maxConcurrentLinks: () => maxLinks,
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

function metadataOf({ tag, path, id, rev, body, client_modified, server_modified, downloadable }: Entry): object {
  const names = { name: basename(path), path_lower: path.toLowerCase(), path_display: path };
  if (tag === 'deleted') return names;
  if (tag === 'folder') return { ...names, id };
  return {
    ...names,
    id,
    client_modified: wholeSeconds(client_modified),
    server_modified: wholeSeconds(server_modified),
    rev,
    size: body.length,
    is_downloadable: downloadable,
    ...(downloadable ? { content_hash: contentHash(body) } : { export_info: { export_as: 'html' } }),
  };
}

function wholeSeconds(time: Date): string {
  return time.toISOString().replace(/\.\d+/, '');
}

/** SHA-256 of the SHA-256 of each block of 4 MiB. */
function contentHash(body: Buffer): string {
  const whole = createHash('sha256');
  for (let at = 0; at < body.length; at += 4_194_304)
    whole.update(
      createHash('sha256')
        .update(body.subarray(at, at + 4_194_304))
        .digest(),
    );
  return whole.digest('hex');
}

function parentOf(path_lower: string): string {
  return path_lower.slice(0, path_lower.lastIndexOf('/'));
}

function badRequest(endpoint: string, why: string, status = 400): Reply {
  return { status, body: `Error in call to API function "${endpoint}": ${why}` };
}

function failure(status: number, summary: string, error: object): Reply {
  return { status, body: { error_summary: `${summary}/..`, error } };
}

function lookupError(why: 'not_found' | 'not_file' | 'not_folder'): Reply {
  return failure(409, `path/${why}`, { '.tag': 'path', path: { '.tag': why } });
}

function tooMany(retry_after_s: number, body: string): Reply {
  const headers = { 'Retry-After': String(retry_after_s) };
  if (body === 'text') return { status: 429, body: 'Too many requests', headers };
  const error = { reason: { '.tag': 'too_many_requests' }, retry_after: retry_after_s };
  return { ...failure(429, 'too_many_requests', error), headers };
}

function parsed(content: string): Arguments | undefined {
  try {
    const value: unknown = JSON.parse(content);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Arguments) : undefined;
  } catch {
    return undefined;
  }
}
