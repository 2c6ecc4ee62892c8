import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { XMLParser } from 'fast-xml-parser';
import { createDropbox } from '../../../src/file-storage/providers/dropbox.js';
import { local } from '../../../src/file-storage/providers/local.js';
import { s3 } from '../../../src/file-storage/providers/s3.js';
import { webdav } from '../../../src/file-storage/providers/webdav.js';
import { collections } from '../../../src/resources/index.js';
import { type Api, type Reply, startTestService, type TestService } from '../../support/service.js';
import { startDropbox } from '../../support/storage/dropbox.js';
import { startHostile } from '../../support/storage/hostile.js';
import { s3Servers, startS3 } from '../../support/storage/s3.js';
import { describeWith } from '../../support/storage/servers.js';
import { startWebdav, webdavServers } from '../../support/storage/webdav.js';

type Settings = Record<string, string>;

const quiet = { info() {}, warn() {}, error() {} };

interface Listed {
  name: string;
  path: string;
  size: number;
  modified_at: number;
  url: string;
}

/** A running storage that holds `files`, and the settings that link it. */
interface Place {
  provider: string;
  settings: Settings;
  /** Values that make the settings fail, with the field that the error must name. */
  wrong: [field: string, value: string][];
  /** Values that no response, log line or document may contain. */
  secrets: string[];
  stop(): Promise<void>;
}

/** From the oldest to the newest. */
const files: [path: string, body: string][] = [
  ['b.csv', 'the first b'],
  ['März/a file+&%20#?.csv', 'alpha, bravo'],
  ['März/тест/文件.txt', '文'],
  ['März/тест/b.csv', 'the second b, somewhat longer'],
];
const paths = files.map(([path]) => path);

const base_s = 1_700_000_000;

async function fill(folder: string): Promise<void> {
  for (const [index, [path, body]] of files.entries()) {
    const file = join(folder, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, body);
    await utimes(file, base_s + index, base_s + index);
  }
}

/** The behaviour common to all providers (reference/file-storage.md). */
function describeStorageContract(open: () => Promise<Place>): void {
  let place: Place;
  let service: TestService;
  let api: Api;
  const logged: string[] = [];
  const seen: string[] = [];
  const user = `/external/${'{provider}'}/user/alice/`;
  const address = () => user.replace('{provider}', place.provider);

  const noted = async (answer: Promise<Reply>): Promise<Reply> => {
    const reply = await answer;
    seen.push(reply.text, JSON.stringify(reply.headers));
    return reply;
  };
  const list = async (query: string): Promise<Listed[]> => {
    const { status, body } = await noted(api.get(`${address()}?${query}`));
    expect([query, status]).toEqual([query, 200]);
    expect(body.total_documents).toBe(body.result.length);
    return body.result;
  };

  beforeAll(async () => {
    place = await open();
    const line = (fields: object, message: string) => logged.push(JSON.stringify([fields, message]));
    const { settings } = place;
    service = await startTestService({
      providers: [s3, webdav, local, createDropbox(settings.api ?? 'https://dropbox.invalid')],
      filestore_allow_nets: ['127.0.0.0/8'],
      ...(settings.root !== undefined && { filestore_local_root: settings.root }),
      log: { info: line, warn: line, error: line },
    });
    for (const key of ['api', 'root']) delete settings[key];
    api = await service.client();
  });
  afterAll(async () => {
    await service?.stop();
    await place?.stop();
  });

  it('is linked only if the settings work', async () => {
    expect((await noted(api.get(`${address()}?op=all`))).body).toEqual({
      code: 4011,
      message: 'unauthorized',
      details: {},
    });
    for (const [field, value] of place.wrong) {
      const { status, body } = await noted(api.put(address(), { ...place.settings, [field]: value }));
      expect([field, status, body.code, Object.keys(body.details)]).toEqual([field, 400, 4003, [field]]);
    }
    expect((await api.get(`${address()}?op=all`)).status).toBe(401);
    const first = await noted(api.put(address(), place.settings));
    expect([first.status, first.body]).toEqual([200, { code: 2001, message: 'storage linked', details: {} }]);
    const again = await noted(api.put(address(), place.settings));
    expect([again.status, again.body]).toEqual([200, { code: 2005, message: 'storage updated', details: {} }]);
  });

  it('takes null for settings of other providers as absent, and for no others', async () => {
    const providers = [s3, webdav, local, createDropbox('https://dropbox.invalid')];
    const none = providers.flatMap(({ fields }) => Object.keys(fields).map((key) => [key, null]));
    const taken = await noted(api.put(address(), { ...Object.fromEntries(none), ...place.settings }));
    expect(taken.body.code).toBe(2005);
    const refused = await noted(api.put(address(), { ...place.settings, colour: null }));
    expect([refused.body.code, refused.body.details]).toEqual([4003, { colour: 'unknown field' }]);
  });

  it('keeps the working settings when others fail', async () => {
    for (const [field, value] of place.wrong)
      expect((await noted(api.put(address(), { ...place.settings, [field]: value }))).status).toBe(400);
    expect(await list('op=all')).toHaveLength(files.length);
  });

  it('lists all files, in JSON and XML', async () => {
    const listed = await list('op=all');
    expect(listed.map(({ path }) => path)).toEqual(paths.toSorted());
    for (const { path, name, size, modified_at } of listed) {
      expect(name).toBe(path.split('/').at(-1));
      expect(size).toBe(Buffer.byteLength(new Map(files).get(path) ?? ''));
      expect(Number.isInteger(modified_at) && modified_at >= base_s).toBe(true);
    }
    const { text, headers } = await api.get(`${address()}?op=all`, { Accept: 'application/xml' });
    expect(headers['content-type']).toBe('application/xml; charset=utf-8');
    const { response } = new XMLParser({ parseTagValue: false }).parse(text);
    expect(response.total_documents).toBe(String(files.length));
    expect(response.result.file.map(({ path }: Listed) => path)).toEqual(paths.toSorted());
    expect(Object.keys(response.result.file[0])).toEqual(['name', 'path', 'size', 'modified_at', 'url']);
  });

  it('lists in four orders', async () => {
    expect((await list('op=oldest')).map(({ path }) => path)).toEqual(paths);
    expect((await list('op=newest')).map(({ path }) => path)).toEqual(paths.toReversed());
    const orders = new Set<string>();
    for (let round = 0; round < 40 && orders.size < 2; round++) {
      const listed = await list('op=random');
      expect(listed.map(({ path }) => path).sort()).toEqual(paths.toSorted());
      orders.add(listed.map(({ path }) => path).join());
    }
    expect(orders.size).toBe(2);
  });

  it('filters by the exact name', async () => {
    expect((await list('op=oldest&name=b.csv')).map(({ path }) => path)).toEqual(['b.csv', 'März/тест/b.csv']);
    expect(await list(`op=all&name=${encodeURIComponent('a file+&%20#?.csv')}`)).toHaveLength(1);
    for (const name of ['B.csv', 'b', 'csv', '.*', 'тест'])
      expect(await list(`op=all&name=${encodeURIComponent(name)}`)).toEqual([]);
  });

  it('returns links that open without a key and hold no credentials', async () => {
    for (const { path, url } of await list('op=all')) {
      const answer = await fetch(url);
      expect([path, answer.status, await answer.text()]).toEqual([path, 200, new Map(files).get(path)]);
      seen.push(JSON.stringify([...answer.headers]));
      expect(new URL(url).username + new URL(url).password).toBe('');
    }
  });

  it('returns links that support ranges and HEAD', async () => {
    const [first] = await list('op=oldest');
    if (first?.url.startsWith(service.url) !== true) return;
    const whole = await fetch(first.url, { method: 'HEAD' });
    expect([whole.status, whole.headers.get('content-length'), await whole.text()]).toEqual([200, '11', '']);
    expect(whole.headers.get('content-disposition')).toContain('b.csv');
    const part = await fetch(first.url, { headers: { Range: 'bytes=4-8' } });
    expect([part.status, part.headers.get('content-range'), await part.text()]).toEqual([206, 'bytes 4-8/11', 'first']);
    const beyond = await fetch(first.url, { headers: { Range: 'bytes=50-60' } });
    expect(beyond.status).toBe(416);
    for (const method of ['POST', 'DELETE']) expect((await fetch(first.url, { method })).status).toBe(405);
  });

  it('returns links that expire', async () => {
    const [first] = await list('op=oldest');
    if (first?.url.startsWith(service.url) !== true) return;
    service.advance(3599);
    expect((await fetch(first.url)).status).toBe(200);
    service.advance(1);
    expect((await fetch(first.url)).status).toBe(404);
    const [fresh] = await list('op=oldest');
    // linked again, it may be another storage
    expect((await api.put(address(), place.settings)).status).toBe(200);
    expect((await fetch(fresh?.url ?? '')).status).toBe(404);
  });

  it('is a separate storage for each user', async () => {
    const bob = address().replace('alice', 'bob');
    expect((await api.get(`${bob}?op=all`)).status).toBe(401);
    expect((await api.put(bob, place.settings)).body.code).toBe(2001);
    expect((await api.delete(bob)).body.code).toBe(2004);
    expect(await list('op=all')).toHaveLength(files.length);
  });

  it('shows its secrets nowhere', async () => {
    const dump: string[] = [];
    for (const { plural } of collections)
      for (const stored of await service.db.collection(plural).find({}, { raw: true }).toArray())
        dump.push(Buffer.from(stored as unknown as Uint8Array).toString('latin1'));
    const everything = [...seen, ...logged, ...dump].join('\n');
    expect(everything).toContain('alice');
    for (const secret of place.secrets)
      for (const form of [
        secret,
        encodeURIComponent(secret),
        Buffer.from(secret).toString('base64').replace(/=*$/, '').slice(0, -1),
      ])
        expect(everything.includes(form)).toBe(false);
  });

  it('is unlinked, which ends its links', async () => {
    const [first] = await list('op=oldest');
    const gone = await noted(api.delete(address()));
    expect([gone.status, gone.body]).toEqual([200, { code: 2004, message: 'storage unlinked', details: {} }]);
    expect((await api.get(`${address()}?op=all`)).status).toBe(401);
    expect((await api.delete(address())).status).toBe(404);
    if (first?.url.startsWith(service.url) === true) expect((await fetch(first.url)).status).toBe(404);
  });
}

describe('local', () => {
  describeStorageContract(async () => {
    const root = await mkdtemp(join(tmpdir(), 'storage-'));
    await fill(join(root, 'acme', 'fleet', 'files'));
    await fill(join(root, 'other', 'fleet', 'none'));
    return {
      provider: 'local',
      settings: { path: 'fleet/files', root },
      wrong: [
        ['path', 'fleet/none'],
        ['path', 'fleet/files/b.csv'],
      ],
      secrets: [root],
      stop: () => rm(root, { recursive: true }),
    };
  });
});

describe('webdav', () => {
  describeWith(webdavServers(), (kind) => {
    describeStorageContract(async () => {
      const { url, username, password, folder, stop } = await startWebdav({ kind });
      await fill(folder);
      return {
        provider: 'webdav',
        settings: { url, username, password },
        wrong: [
          ['password', randomUUID()],
          ['url', `${url}none/`],
        ],
        secrets: [password, `${username}:${password}`],
        stop,
      };
    });
  });
});

describe('s3', () => {
  describeWith(s3Servers(), (kind) => {
    describeStorageContract(async () => {
      const { endpoint, region, bucket, access_key_id, secret_access_key, put, stop } = await startS3({ kind });
      await put('fleet-old/other.txt', 'beside the prefix');
      try {
        for (const [path, body] of files) {
          await put(`fleet/${path}`, body);
          // the server's clock dates them, in whole seconds
          await sleep(1100);
        }
      } catch (error) {
        await stop();
        throw error;
      }
      return {
        provider: 's3',
        settings: { endpoint, region, bucket, access_key_id, secret_access_key, prefix: 'fleet' },
        wrong: [
          ['secret_access_key', randomUUID()],
          ['bucket', 'none-of-them'],
        ],
        secrets: [secret_access_key],
        stop,
      };
    });
  });
});

describe('dropbox', () => {
  describeStorageContract(async () => {
    const { url, access_token, put, stop } = await startDropbox({ page_size: 2 });
    for (const [index, [path, body]] of files.entries())
      put(`/${path}`, body, { modified_at: new Date((base_s + index) * 1000) });
    put('/a paper.gdoc', 'not for download', { downloadable: false });
    return {
      provider: 'dropbox',
      settings: { access_token, api: url },
      wrong: [
        ['access_token', 'sl.u.wrong'],
        ['access_token', '!'],
      ],
      secrets: [access_token],
      stop,
    };
  });
});

describe('long listings', () => {
  const address = (provider: string) => `/external/${provider}/user/alice/?op=all`;

  it('are read from S3 page by page', async () => {
    const page = (number: number) => {
      const keys = Array.from({ length: 1000 }, (_, index) => `<Contents><Key>${number}/${index}</Key></Contents>`);
      const next = `<IsTruncated>${number < 49}</IsTruncated><NextContinuationToken>+/${number + 1}=</NextContinuationToken>`;
      return `<ListBucketResult>${next}${keys.join('')}</ListBucketResult>`;
    };
    // a real server would need minutes to be filled
    const server = await startHostile(({ target }) => {
      const token = new URL(target, 'http://host').searchParams.get('continuation-token') ?? '+/0=';
      return { kind: 'answer', status: 200, body: page(Number(token.slice(2, -1))) };
    });
    const service = await startTestService({ filestore_allow_nets: ['127.0.0.0/8'] });
    const api = await service.client();
    const settings = { endpoint: server.url, region: 'r', bucket: 'b', access_key_id: 'a', secret_access_key: 's' };
    expect((await api.put('/external/s3/user/alice/', settings)).status).toBe(200);
    const { body } = await api.get(`${address('s3')}&name=999`);
    expect([body.total_documents, server.requests().length]).toEqual([50, 51]);
    await service.stop();
    await server.stop();
  });

  it('ask Dropbox for few links at once, and for none where they are many', async () => {
    const { url, access_token, put, calls, maxConcurrentLinks, throttle, stop } = await startDropbox();
    const service = await startTestService({
      filestore_allow_nets: ['127.0.0.0/8'],
      providers: [createDropbox(url)],
      log: quiet,
    });
    const api = await service.client();
    expect((await api.put('/external/dropbox/user/alice/', { access_token })).status).toBe(200);
    for (let index = 0; index < 100; index++) put(`/${index}.txt`, `body ${index}`);
    const few = (await api.get(address('dropbox'))).body.result;
    expect(few.every((file: Listed) => file.url.startsWith(`${url}/content/`))).toBe(true);
    expect([calls('files/get_temporary_link'), maxConcurrentLinks() <= 10]).toEqual([100, true]);
    put('/100.txt', 'body 100');
    const many = (await api.get(address('dropbox'))).body.result;
    expect([many.length, calls('files/get_temporary_link')]).toEqual([101, 100]);
    expect(await (await fetch(many[0].url)).text()).toBe('body 0');
    expect(calls('files/get_temporary_link')).toBe(101);
    throttle(1, 1);
    expect((await fetch(many[0].url)).status).toBe(503);
    await service.stop();
    await stop();
  });
});
